package shop;

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.Table;
import java.util.Map;
import java.util.UUID;
import org.hibernate.annotations.Immutable;
import org.hibernate.annotations.JdbcTypeCode;
import org.hibernate.type.SqlTypes;

/** What not to map: an id without a generator, of which merge() makes another INSERT. */
@Entity
@Table(schema = "outbox", name = "outbox_new")
public class AssignedMessage {
    @Id
    public UUID id;
    @Column(name = "event_type")
    public String eventType;
    @Immutable
    @JdbcTypeCode(SqlTypes.JSON)
    public Map<String, Object> payload;
}
