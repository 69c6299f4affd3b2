package shop;

import java.time.Instant;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;

import io.debezium.outbox.quarkus.ExportedEvent;

public class OrderCreated implements ExportedEvent<String, JsonNode> {
    private static final ObjectMapper MAPPER = new ObjectMapper();

    private final String id;
    private final JsonNode payload;
    private final Instant timestamp = Instant.now();

    public OrderCreated(PurchaseOrder order) {
        id = String.valueOf(order.id);
        payload = MAPPER.createObjectNode().put("id", order.id).put("customer", order.customer);
    }

    @Override
    public String getAggregateId() {
        return id;
    }

    @Override
    public String getAggregateType() {
        return "order";
    }

    @Override
    public String getType() {
        return "order.created";
    }

    @Override
    public Instant getTimestamp() {
        return timestamp;
    }

    @Override
    public JsonNode getPayload() {
        return payload;
    }
}
