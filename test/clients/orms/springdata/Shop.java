package shop;

import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

// [service]
@Service
public class Shop {
    private final Orders orders;
    private final Messages messages;

    public Shop(Orders orders, Messages messages) {
        this.orders = orders;
        this.messages = messages;
    }

    @Transactional
    public Message place(String customer, int total, String eventType) {
        Order order = orders.save(new Order(customer, total));
        return messages.save(new Message(eventType, "order", order.id, Map.of("order", order.id)));
    }
    // [/service]

    @Transactional
    public List<Message> placeMany(String customer, int total, String eventType) {
        Order order = orders.save(new Order(customer, total));
        List<Message> created = new ArrayList<>();
        for (int i = 0; i < 100; i++) {
            created.add(new Message(eventType, "order", order.id, Map.of("n", i)));
        }
        return messages.saveAll(created);
    }
}
