import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.PrintStream;
import java.io.StringWriter;
import java.nio.charset.StandardCharsets;
import java.sql.SQLException;
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
import org.flywaydb.core.Flyway;
import org.hibernate.Session;
import org.hibernate.SessionFactory;
import org.hibernate.boot.model.naming.Identifier;
import org.hibernate.boot.model.naming.PhysicalNamingStrategyStandardImpl;
import org.hibernate.cfg.Configuration;
import org.hibernate.engine.jdbc.env.spi.JdbcEnvironment;
import org.hibernate.tool.schema.spi.SchemaManagementException;
import shop.AssignedMessage;
import shop.Message;
import shop.Order;
import shop.StampedMessage;

/** Each operation of the matrix by Hibernate; migrations by Flyway. */
public class Main {
    interface Operation {
        void run(SessionFactory factory) throws Exception;
    }

    static final Map<String, String> env = System.getenv();
    static final Map<String, Object> said = new LinkedHashMap<>();
    static String operation;

    // --- tools

    static String url() {
        return "jdbc:postgresql://" + env.get("PGHOST") + ":" + env.get("PGPORT") + "/" + env.get("PGDATABASE")
            + "?sslmode=disable";
    }

    /** With the view in this schema; null: where the path leads to. */
    static Configuration configuration(String schema) {
        return new Configuration()
            .setPhysicalNamingStrategy(new PhysicalNamingStrategyStandardImpl() {
                @Override
                public Identifier toPhysicalSchemaName(Identifier name, JdbcEnvironment environment) {
                    return name == null ? null : Identifier.toIdentifier(schema);
                }
            })
            .addAnnotatedClass(Message.class)
            .addAnnotatedClass(Order.class)
            .setProperty("hibernate.connection.url", url() + "&reWriteBatchedInserts=true")
            .setProperty("hibernate.connection.username", env.get("PGUSER"))
            .setProperty("hibernate.hikari.maximumPoolSize", "4")
            .setProperty("hibernate.jdbc.batch_size", "50")
            ;
    }

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

    /** By the server or by the ORM. */
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

    static Order order(Session session) {
        Order order = new Order(operation, 42);
        session.persist(order);
        return order;
    }

    static Message message(Order order) {
        return new Message(type(), "order", order.id, Map.of("order", order.id));
    }

    /** An order and its message, in the caller's transaction. */
    static Message placed(Session session) {
        Message message = message(order(session));
        session.persist(message);
        return message;
    }

    static void ids(UUID... ids) {
        said.put("ids", Arrays.asList(ids));
    }

    // --- messages

    static void map(SessionFactory factory) {
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
        factory.inTransaction(session -> session.persist(message));
        ids(message.id);
    }

    static void insert(SessionFactory factory) {
        StampedMessage message = factory.fromTransaction(session -> {
            Order order = order(session);
            StampedMessage stamped = new StampedMessage();
            stamped.eventType = type();
            stamped.aggregateType = "order";
            stamped.aggregateId = String.valueOf(order.id);
            stamped.payload = Map.of("order", order.id);
            session.persist(stamped);
            return stamped;
        });
        expect("route", "default", message.route);
        expect("created_at", "true", String.valueOf(message.createdAt != null));
        expectRefused("merge", () -> factory.inTransaction(session -> session.merge(message)));
        ids(message.id);
    }

    static void ownId(SessionFactory factory) {
        // [insert]
        Message message = factory.fromTransaction(session -> {
            Order order = new Order("Zoë", 42);
            session.persist(order);
            Message created = new Message(type(), "order", order.id, Map.of("order", order.id));
            session.persist(created);
            return created;
        });
        // [/insert]
        ids(message.id);
    }

    static void function(SessionFactory factory) {
        factory.inTransaction(session -> {
            Order order = order(session);
            UUID id = session.createNativeQuery(
                    "SELECT outbox_enqueue(:event_type, CAST(:payload AS jsonb), 'order', :order)", UUID.class)
                .setParameter("event_type", type())
                .setParameter("payload", "{\"order\": " + order.id + "}")
                .setParameter("order", String.valueOf(order.id))
                .getSingleResult();
            ids(id);
        });
    }

    static void bytes(SessionFactory factory) {
        Message message = factory.fromTransaction(session -> {
            Message label = message(order(session));
            label.payload = null;
            label.body = new byte[256];
            for (int i = 0; i < 256; i++) {
                label.body[i] = (byte) i;
            }
            session.persist(label);
            return label;
        });
        ids(message.id);
    }

    static void batch(SessionFactory factory) {
        List<Message> messages = new ArrayList<>();
        factory.inTransaction(session -> {
            Order order = order(session);
            for (int i = 0; i < 100; i++) {
                Message message = new Message(type(), "order", order.id, Map.of("n", i));
                session.persist(message);
                messages.add(message);
            }
        });
        ids(messages.stream().map(message -> message.id).toArray(UUID[]::new));
    }

    static void rollback(SessionFactory factory) {
        expect("rollback", "by Hibernate", refused(() -> factory.inTransaction(session -> {
            placed(session);
            session.flush();
            throw new IllegalStateException("no");
        })));
    }

    static void savepoint(SessionFactory factory) {
        factory.inTransaction(session -> {
            Order order = order(session);
            List<Message> messages = new ArrayList<>();
            for (int i = 1; i <= 3; i++) {
                messages.add(new Message(type(), "order", order.id, Map.of("n", i)));
            }
            session.persist(messages.get(0));
            Message undone = messages.get(1);
            session.flush();
            session.doWork(connection -> {
                Savepoint savepoint = connection.setSavepoint();
                session.persist(undone);
                session.flush();
                connection.rollback(savepoint);
                session.detach(undone);
            });
            session.persist(messages.get(2));
            ids(messages.get(0).id, messages.get(2).id);
        });
    }

    /** All ways to save it once more; what merge() says. */
    static String again(SessionFactory factory, Message message) {
        expect("persist", "by Hibernate", refused(() -> factory.inTransaction(session -> session.persist(message))));
        return refused(() -> factory.inTransaction(session -> session.merge(message)));
    }

    static void secondSave(SessionFactory factory) {
        Message message = factory.fromTransaction(session -> {
            Message placed = placed(session);
            session.persist(placed);
            session.flush();
            session.persist(placed);
            session.merge(placed);
            return placed;
        });
        ids(message.id);
        said.put("error", again(factory, message));
        AssignedMessage assigned = new AssignedMessage();
        assigned.id = message.id;
        assigned.eventType = message.eventType;
        assigned.payload = message.payload;
        expect("merge() without a generator", "23505",
            refused(() -> factory.inTransaction(session -> session.merge(assigned))));
    }

    static void waitFor(SessionFactory factory, UUID id) {
        expect("outbox_wait()", "published", factory.fromTransaction(session ->
            session.createNativeQuery("SELECT outbox_wait(:id, '60 s')", String.class).setParameter("id", id).getSingleResult()));
    }

    static void secondSaveGone(SessionFactory factory) {
        Message message = factory.fromTransaction(Main::placed);
        ids(message.id);
        waitFor(factory, message.id);
        said.put("error", again(factory, message));
    }

    static void update(SessionFactory factory) {
        Message message = factory.fromTransaction(Main::placed);
        ids(message.id);
        message.eventType = "order.changed";
        said.put("error", refused(() -> factory.inTransaction(session -> session.merge(message))));
        expectRefused("managed", () -> factory.inTransaction(session -> {
            Message other = placed(session);
            session.flush();
            other.eventType = "order.changed";
        }));
        expectRefused("stateless", () -> factory.inStatelessTransaction(session -> session.update(message)));
    }

    static void delete(SessionFactory factory) {
        Message message = factory.fromTransaction(Main::placed);
        ids(message.id);
        said.put("error", refused(() -> factory.inStatelessTransaction(session -> session.delete(message))));
        expectRefused("managed", () -> factory.inTransaction(session -> {
            Message other = placed(session);
            session.flush();
            session.remove(other);
        }));
    }

    static void pool(SessionFactory factory) throws InterruptedException {
        List<UUID> ids = new CopyOnWriteArrayList<>();
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < 4; i++) {
            Thread thread = new Thread(() -> {
                for (int n = 0; n < 25; n++) {
                    ids.add(factory.fromTransaction(Main::placed).id);
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

    /** What a test does: it sees what it has stored, and nothing is left. */
    static void tests(SessionFactory factory) {
        factory.inSession(session -> {
            session.beginTransaction();
            Message message = placed(session);
            session.flush();
            List<?> stored = session.createNativeQuery("SELECT event_type FROM outbox WHERE id = :id", String.class)
                .setParameter("id", message.id).getResultList();
            session.getTransaction().rollback();
            expect("stored", List.of(type()).toString(), stored.toString());
        });
        said.put("says", "rolled back");
    }

    // --- the schema

    /** Statements that hbm2ddl would run, and what its validation says. */
    static void diff(String schema) {
        List<String> wants = new ArrayList<>();
        try {
            configuration(schema).setProperty("hibernate.hbm2ddl.auto", "validate").buildSessionFactory().close();
        } catch (SchemaManagementException e) {
            wants.add(e.getMessage());
        }
        StringWriter script = new StringWriter();
        Configuration update = configuration(schema)
            .setProperty("jakarta.persistence.schema-generation.scripts.action", "update");
        update.getProperties().put("jakarta.persistence.schema-generation.scripts.create-target", script);
        update.buildSessionFactory().close();
        for (String line : script.toString().split("\n")) {
            if (!line.isBlank()) {
                wants.add(line.strip());
            }
        }
        said.put("wants", wants);
    }

    static Flyway flyway() {
        return Flyway.configure()
            .dataSource(url(), env.get("PGUSER"), null)
            .defaultSchema("public")
            .locations("classpath:db/" + operation.replaceAll("_.*", ""))
            .baselineOnMigrate(true)
            .baselineVersion("0")
            .load();
    }

    static void migrate() {
        flyway().migrate();
    }

    /** Clean empties the schemas that Flyway manages, and the extension is in another one. */
    static void extension() {
        migrate();
        Flyway.configure().configuration(flyway().getConfiguration()).cleanDisabled(false).load().clean();
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
            Configuration configuration = configuration(env.get("OUTBOX_SCHEMA")).addAnnotatedClass(StampedMessage.class)
                .addAnnotatedClass(AssignedMessage.class);
            try (SessionFactory factory = configuration.buildSessionFactory()) {
                operations.get(operation).run(factory);
            }
        } else if (operation.equals("diff")) {
            diff(null);
        } else if (operation.equals("diff_mended")) {
            diff(env.get("OUTBOX_SCHEMA"));
        } else if (operation.equals("migrate_up")) {
            migrate();
        } else if (operation.equals("extension")) {
            extension();
        } else {
            said.put("none", "neither Hibernate nor the free Flyway has it");
        }
        new PrintStream(System.out, true, StandardCharsets.UTF_8).println(new ObjectMapper().writeValueAsString(said));
    }
}
