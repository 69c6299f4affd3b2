package shop;

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import java.time.Instant;
import java.util.Map;
import java.util.UUID;
import org.hibernate.annotations.Immutable;
import org.hibernate.annotations.JdbcTypeCode;
import org.hibernate.annotations.UuidGenerator;
import org.hibernate.type.SqlTypes;

/** As on the page about Hibernate. */
@Entity
@Table(schema = "outbox", name = "outbox_new")
public class Message {
    @Id
    @UuidGenerator(style = UuidGenerator.Style.VERSION_7)
    public UUID id;
    public String route;
    @Column(name = "event_type")
    public String eventType;
    @Column(name = "aggregate_type")
    public String aggregateType;
    @Column(name = "aggregate_id")
    public String aggregateId;
    @Immutable
    @JdbcTypeCode(SqlTypes.JSON)
    public Map<String, Object> payload;
    public byte[] body;
    @Immutable
    @JdbcTypeCode(SqlTypes.JSON)
    public Map<String, Object> headers;
    @Immutable
    @JdbcTypeCode(SqlTypes.JSON)
    public Map<String, Object> properties;
    @Column(name = "routing_key")
    public String routingKey;
    @Column(name = "created_at")
    public Instant createdAt;
    @Column(name = "available_at")
    public Instant availableAt;

    protected Message() {
    }

    public Message(String eventType, String aggregateType, Object aggregateId, Map<String, Object> payload) {
        this.eventType = eventType;
        this.aggregateType = aggregateType;
        this.aggregateId = String.valueOf(aggregateId);
        this.payload = payload;
    }
}
