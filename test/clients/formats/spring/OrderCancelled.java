package shop.orders;

/** Another event of the same queue: only __TypeId__ tells them apart. */
public record OrderCancelled(int number, String reason) { }
