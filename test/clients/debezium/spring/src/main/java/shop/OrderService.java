package shop;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import org.springframework.data.jpa.repository.JpaRepository;
import org.springframework.stereotype.Service;
import org.springframework.transaction.annotation.Transactional;

interface Orders extends JpaRepository<PurchaseOrder, Long> {
}

interface Events extends JpaRepository<OutboxEvent, java.util.UUID> {
}

@Service
class OrderService {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private final Orders orders;
    private final Events events;

    OrderService(Orders orders, Events events) {
        this.orders = orders;
        this.events = events;
    }

    @Transactional
    public void order(String customer, int count, boolean fail) throws JsonProcessingException {
        for (int i = 0; i < count; i++) {
            PurchaseOrder order = new PurchaseOrder();
            order.customer = customer;
            fire(orders.save(order));
        }
        if (fail) {
            throw new IllegalStateException("the business says no");
        }
    }

    // Gone again at once: the log has it.
    private void fire(PurchaseOrder order) throws JsonProcessingException {
        OutboxEvent event = new OutboxEvent();
        event.aggregateType = "order";
        event.aggregateId = String.valueOf(order.id);
        event.type = "order.created";
        event.payload = MAPPER.writeValueAsString(order);
        events.delete(events.save(event));
    }
}
