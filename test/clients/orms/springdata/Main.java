import com.fasterxml.jackson.databind.ObjectMapper;
import jakarta.persistence.EntityManager;
import jakarta.persistence.EntityManagerFactory;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.sql.Savepoint;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.CopyOnWriteArrayList;
import java.sql.SQLException;
import org.hibernate.Session;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.orm.jpa.SharedEntityManagerCreator;
import org.springframework.transaction.PlatformTransactionManager;
import org.springframework.transaction.support.TransactionTemplate;
import shop.Application;
import shop.Message;
import shop.Messages;
import shop.Order;
import shop.Orders;
import shop.OwnIdMessage;
import shop.OwnIdMessages;
import shop.Shop;

/** Each operation of the matrix by Spring Data JPA; migrations by Liquibase. */
public class Main {
    interface Operation {
        void run() throws Exception;
    }

    static final Map<String, Object> said = new LinkedHashMap<>();
    static String operation;
    static AnnotationConfigApplicationContext context;
    static TransactionTemplate transaction;
    static Shop shop;
    static Orders orders;
    static Messages messages;
    static OwnIdMessages ownIds;

    // --- tools

    /** The SQLSTATE of what it is refused with, "by Hibernate" without one, or null. */
    static String refused(Runnable what) {
        try {
            what.run();
            return null;
        } catch (RuntimeException e) {
            System.err.println(e);
            for (Throwable cause = e; cause != null; cause = cause.getCause()) {
                if (cause instanceof SQLException && ((SQLException) cause).getSQLState() != null) {
                    return ((SQLException) cause).getSQLState();
                }
            }
            return "by Hibernate";
        }
    }

    static void expectRefused(String what, Runnable tried) {
        if (refused(tried) == null) {
            throw new IllegalStateException(what + " is not refused");
        }
    }

    static void expect(String what, String expected, String is) {
        if (!String.valueOf(is).equals(String.valueOf(expected))) {
            throw new IllegalStateException(what + ": " + is + ", and not " + expected);
        }
    }

    static String type() {
        return "order." + operation;
    }

    static Message placed() {
        return shop.place(operation, 42, type());
    }

    static void ids(UUID... ids) {
        said.put("ids", Arrays.asList(ids));
    }

    // --- messages

    static void map() {
        Map<String, Object> payload = new TreeMap<>();
        payload.put("n", 42);
        payload.put("name", "Zoë");
        payload.put("nothing", null);
        Message message = new Message(type(), "customer", 42, payload);
        message.route = "default";
        message.headers = Map.of("tenant", "a\\b", "x-retries", 3);
        message.properties = Map.of("priority", 5);
        message.routingKey = "a.key";
        message.createdAt = Instant.parse("2026-01-02T03:04:05Z");
        message.availableAt = Instant.parse("2040-01-02T03:04:05Z");
        ids(messages.save(message).id);
    }

    static void insert() {
        ids(placed().id);
    }

    static void ownId() {
        OwnIdMessage message = new OwnIdMessage();
        message.id = UUID.randomUUID();
        message.eventType = type();
        message.aggregateType = "order";
        transaction.executeWithoutResult(status -> {
            Order order = orders.save(new Order(operation, 42));
            message.aggregateId = String.valueOf(order.id);
            message.payload = Map.of("order", order.id);
            ownIds.save(message);
        });
        ids(message.id);
        expectRefused("again", () -> ownIds.save(message));
        messages.await(message.id);
        expectRefused("again, when it is gone", () -> ownIds.save(message));
    }

    static void function() {
        transaction.executeWithoutResult(status -> {
            Order order = orders.save(new Order(operation, 42));
            ids(messages.enqueue(type(), "{\"order\": " + order.id + "}", "order", String.valueOf(order.id)));
        });
    }

    static void bytes() {
        Message label = new Message(type(), "order", 1, null);
        label.body = new byte[256];
        for (int i = 0; i < 256; i++) {
            label.body[i] = (byte) i;
        }
        ids(messages.save(label).id);
    }

    static void batch() {
        ids(shop.placeMany(operation, 42, type()).stream().map(message -> message.id).toArray(UUID[]::new));
    }

    static void rollback() {
        expect("rollback", "by Hibernate", refused(() -> transaction.executeWithoutResult(status -> {
            placed();
            messages.flush();
            throw new IllegalStateException("no");
        })));
    }

    /** Propagation.NESTED is not for Hibernate, whose session knows nothing of a savepoint. */
    static void savepoint() {
        EntityManager manager = SharedEntityManagerCreator.createSharedEntityManager(context.getBean(EntityManagerFactory.class));
        transaction.executeWithoutResult(status -> {
            Order order = orders.save(new Order(operation, 42));
            List<Message> created = new ArrayList<>();
            for (int i = 1; i <= 3; i++) {
                created.add(new Message(type(), "order", order.id, Map.of("n", i)));
            }
            messages.saveAndFlush(created.get(0));
            Message undone = created.get(1);
            manager.unwrap(Session.class).doWork(connection -> {
                Savepoint savepoint = connection.setSavepoint();
                messages.saveAndFlush(undone);
                connection.rollback(savepoint);
                manager.detach(undone);
            });
            messages.save(created.get(2));
            ids(created.get(0).id, created.get(2).id);
        });
    }

    static void secondSave() {
        Message message = placed();
        ids(message.id);
        said.put("error", refused(() -> messages.save(message)));
    }

    static void secondSaveGone() {
        Message message = placed();
        ids(message.id);
        expect("outbox_wait()", "published", messages.await(message.id));
        said.put("error", refused(() -> messages.save(message)));
    }

    static void update() {
        Message message = placed();
        ids(message.id);
        message.eventType = "order.changed";
        said.put("error", refused(() -> messages.save(message)));
        expectRefused("managed", () -> transaction.executeWithoutResult(status -> {
            Message other = placed();
            messages.flush();
            other.eventType = "order.changed";
        }));
    }

    /** It looks for the row, finds none, and has nothing to do. */
    static void delete() {
        Message message = placed();
        ids(message.id);
        said.put("error", refused(() -> messages.delete(message)));
        messages.deleteById(message.id);
        messages.deleteAll();
        expectRefused("deleteAllInBatch()", () -> messages.deleteAllInBatch());
    }

    static void pool() throws InterruptedException {
        List<UUID> ids = new CopyOnWriteArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            Thread thread = new Thread(() -> {
                for (int n = 0; n < 25; n++) {
                    ids.add(placed().id);
                }
            });
            thread.start();
            threads.add(thread);
        }
        for (Thread thread : threads) {
            thread.join();
        }
        said.put("ids", ids);
    }

    /** As a test with @Transactional does. */
    static void tests() {
        transaction.executeWithoutResult(status -> {
            Message message = placed();
            messages.flush();
            expect("stored", "1", String.valueOf(messages.stored(message.id)));
            status.setRollbackOnly();
        });
        said.put("says", "rolled back");
    }

    public static void main(String[] args) throws Exception {
        operation = args[0];
        Map<String, Operation> operations = new TreeMap<>();
        operations.put("map", Main::map);
        operations.put("insert", Main::insert);
        operations.put("own_id", Main::ownId);
        operations.put("function", Main::function);
        operations.put("bytes", Main::bytes);
        operations.put("batch", Main::batch);
        operations.put("rollback", Main::rollback);
        operations.put("savepoint", Main::savepoint);
        operations.put("second_save", Main::secondSave);
        operations.put("second_save_gone", Main::secondSaveGone);
        operations.put("update", Main::update);
        operations.put("delete", Main::delete);
        operations.put("pool", Main::pool);
        operations.put("tests", Main::tests);
        if (operations.containsKey(operation)) {
            try (AnnotationConfigApplicationContext opened = new AnnotationConfigApplicationContext(Application.class)) {
                context = opened;
                transaction = new TransactionTemplate(opened.getBean(PlatformTransactionManager.class));
                shop = opened.getBean(Shop.class);
                orders = opened.getBean(Orders.class);
                messages = opened.getBean(Messages.class);
                ownIds = opened.getBean(OwnIdMessages.class);
                operations.get(operation).run();
            }
        } else {
            Migrations.run(operation, said);
        }
        new PrintStream(System.out, true, StandardCharsets.UTF_8).println(new ObjectMapper().writeValueAsString(said));
    }
}
