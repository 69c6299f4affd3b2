package shop;

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import java.time.Instant;
import java.util.Map;
import java.util.UUID;
import org.hibernate.annotations.Generated;
import org.hibernate.annotations.Immutable;
import org.hibernate.annotations.JdbcTypeCode;
import org.hibernate.type.SqlTypes;

@Entity
@Table(schema = "outbox", name = "outbox_new")
public class StampedMessage {
    @Id
    @Generated
    public UUID id;
    @Generated
    public String route;
    @Generated
    @Column(name = "created_at")
    public Instant createdAt;
    @Column(name = "event_type")
    public String eventType;
    @Column(name = "aggregate_type")
    public String aggregateType;
    @Column(name = "aggregate_id")
    public String aggregateId;
    @Immutable
    @JdbcTypeCode(SqlTypes.JSON)
    public Map<String, Object> payload;
}
