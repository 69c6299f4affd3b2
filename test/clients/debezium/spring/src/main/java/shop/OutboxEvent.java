package shop;

import java.util.UUID;

import jakarta.persistence.Column;
import jakarta.persistence.Entity;
import jakarta.persistence.GeneratedValue;
import jakarta.persistence.Id;
import jakarta.persistence.Table;

/** The columns that Debezium's event router looks for if nothing is configured. */
@Entity
@Table(name = "outboxevent")
public class OutboxEvent {
    @Id
    @GeneratedValue
    public UUID id;

    @Column(name = "aggregatetype", nullable = false)
    public String aggregateType;

    @Column(name = "aggregateid", nullable = false)
    public String aggregateId;

    @Column(name = "type", nullable = false)
    public String type;

    @Column(name = "payload", nullable = false)
    public String payload;
}
