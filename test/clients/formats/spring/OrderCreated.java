package shop.orders;

import java.math.BigDecimal;
import java.util.List;

/** What an application of Spring would have for the event; lines shows that generics inside work. */
public record OrderCreated(int number, String customer, String note, BigDecimal total, List<Line> lines) {
    public record Line(String sku, int count) { }
}
