package shop;

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.Id;
import jakarta.persistence.PostPersist;
import jakarta.persistence.PrePersist;
import jakarta.persistence.Table;
import jakarta.persistence.Transient;
import java.util.Map;
import java.util.UUID;
import org.hibernate.annotations.Immutable;
import org.hibernate.annotations.JdbcTypeCode;
import org.hibernate.type.SqlTypes;
import org.springframework.data.domain.Persistable;

@Entity
@Table(schema = "outbox", name = "outbox_new")
public class OwnIdMessage implements Persistable<UUID> {
    @Id
    public UUID id;
    @Transient
    private boolean enqueued;

    @Override
    public UUID getId() {
        return id;
    }

    @Override
    public boolean isNew() {
        return true;        // save() is persist(), never merge()
    }

    @PrePersist
    void refuseTwice() {
        if (enqueued) {
            throw new IllegalStateException("message " + id + " has been enqueued already");
        }
    }

    @PostPersist
    void remember() {
        enqueued = true;
    }

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
