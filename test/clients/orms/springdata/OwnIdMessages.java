package shop;

import java.util.UUID;
import org.springframework.data.jpa.repository.JpaRepository;

public interface OwnIdMessages extends JpaRepository<OwnIdMessage, UUID> {
}
