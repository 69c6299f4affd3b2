import com.rabbitmq.client.Channel;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Delivery;
import java.nio.charset.StandardCharsets;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.SQLException;
import java.util.concurrent.CompletableFuture;

/** A consumer whose effect happens once for each message, however often that is delivered. */
final class Once {
	private Once() {}

	// [once]
	private static void effect(Connection db, Delivery delivery) throws SQLException {
		String id = delivery.getProperties().getMessageId();
		try (PreparedStatement accept = db.prepareStatement("SELECT inbox.outbox_inbox_accept('java', ?::uuid)");
				PreparedStatement insert = db.prepareStatement(
					"INSERT INTO notifications (consumer, message_id, body) VALUES ('java', ?::uuid, ?::jsonb)")) {
			accept.setString(1, id);
			ResultSet row = accept.executeQuery();
			row.next();
			if (row.getBoolean(1)) { // false: processed before
				insert.setString(1, id);
				insert.setString(2, new String(delivery.getBody(), StandardCharsets.UTF_8));
				insert.executeUpdate();
			}
		}
		db.commit();
	}

	private static void handle(Connection db, Channel channel, Delivery delivery) throws Exception {
		long tag = delivery.getEnvelope().getDeliveryTag();
		try {
			effect(db, delivery);
		} catch (SQLException e) {
			// no connection, a deadlock or a conflict, no room, or the server is going down
			if (e.getSQLState() == null || e.getSQLState().matches("(08|40|53|57|58).*")) throw e;
			db.rollback();
			channel.basicNack(tag, false, true); // the server's verdict on it; x-delivery-limit bounds how often
			return;
		}
		channel.basicAck(tag, false); // only after the commit
	}

	// Returns, with an exception, when the broker or the database is gone.
	private static void consume(ConnectionFactory factory, String queue) throws Exception {
		CompletableFuture<Void> end = new CompletableFuture<>();
		try (Connection db = DriverManager.getConnection(System.getenv("JDBC_URL"));
				com.rabbitmq.client.Connection broker = factory.newConnection()) {
			db.setAutoCommit(false);
			Channel channel = broker.createChannel();
			channel.addShutdownListener(end::completeExceptionally);
			channel.basicQos(50);
			channel.basicConsume(queue, false, (tag, delivery) -> {
				try {
					handle(db, channel, delivery);
				} catch (Exception e) {
					end.completeExceptionally(e);
				}
			}, tag -> end.completeExceptionally(new IllegalStateException("the consumer was cancelled")));
			System.out.println("consuming");
			end.get();
		}
	}

	static void run(String uri, String queue) throws Exception {
		ConnectionFactory factory = new ConnectionFactory();
		factory.setUri(uri);
		factory.setRequestedHeartbeat(30);
		factory.setAutomaticRecoveryEnabled(false); // the loop makes both connections anew
		while (true) {
			try {
				consume(factory, queue);
			} catch (Exception e) {
				System.out.println("again in a second: " + e);
				Thread.sleep(1000);
			}
		}
	}
	// [/once]
}
