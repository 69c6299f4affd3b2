package shop;

import java.util.UUID;
import org.springframework.data.jpa.repository.JpaRepository;
import org.springframework.data.jpa.repository.Query;

public interface Messages extends JpaRepository<Message, UUID> {
    @Query(nativeQuery = true, value = "SELECT outbox_enqueue(:eventType, CAST(:payload AS jsonb), :aggregateType, :aggregateId)")
    UUID enqueue(String eventType, String payload, String aggregateType, String aggregateId);

    @Query(nativeQuery = true, value = "SELECT outbox_wait(:id, '60 s')")
    String await(UUID id);

    @Query(nativeQuery = true, value = "SELECT count(*) FROM outbox WHERE id = :id")
    long stored(UUID id);
}
