package shop;

import jakarta.enterprise.context.ApplicationScoped;
import jakarta.enterprise.event.Event;
import jakarta.inject.Inject;
import jakarta.persistence.EntityManager;
import jakarta.transaction.Transactional;

import io.debezium.outbox.quarkus.ExportedEvent;

@ApplicationScoped
public class OrderService {
    @Inject
    EntityManager entityManager;

    @Inject
    Event<ExportedEvent<?, ?>> event;

    // As Debezium's documentation has it: the event is fired in the transaction.
    @Transactional
    public void order(String customer, int count, boolean fail) {
        for (int i = 0; i < count; i++) {
            PurchaseOrder order = new PurchaseOrder();
            order.customer = customer;
            entityManager.persist(order);
            event.fire(new OrderCreated(order));
        }
        if (fail) {
            throw new IllegalStateException("the business says no");
        }
    }
}
