import java.net.URI;
import java.nio.charset.StandardCharsets;
import org.postgresql.ds.PGSimpleDataSource;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.listener.SimpleMessageListenerContainer;
import org.springframework.dao.DataAccessResourceFailureException;
import org.springframework.dao.RecoverableDataAccessException;
import org.springframework.dao.TransientDataAccessException;
import org.springframework.jdbc.core.JdbcTemplate;
import org.springframework.jdbc.support.JdbcTransactionManager;
import org.springframework.transaction.CannotCreateTransactionException;
import org.springframework.transaction.TransactionSystemException;
import org.springframework.transaction.support.TransactionTemplate;

/** A consumer whose effect happens once for each message, however often that is delivered. */
final class Once {
	private Once() {}

	// [once]
	private static void effect(JdbcTemplate db, Message message) {
		String id = message.getMessageProperties().getMessageId();
		String body = new String(message.getBody(), StandardCharsets.UTF_8);
		boolean first = db.queryForObject("SELECT inbox.outbox_inbox_accept('spring', ?::uuid)", Boolean.class, id);
		if (first) { // false: processed before
			db.update("INSERT INTO notifications (consumer, message_id, body) VALUES ('spring', ?::uuid, ?::jsonb)", id, body);
		}
	}

	// No connection, a deadlock, or the server is going down: the same message again, here, as
	// what is given back would come again at once, and soon exceed x-delivery-limit.
	private static void handle(TransactionTemplate transaction, JdbcTemplate db, Message message) {
		while (true) {
			try {
				transaction.executeWithoutResult(status -> effect(db, message));
				return;
			} catch (CannotCreateTransactionException | TransactionSystemException | TransientDataAccessException
					| RecoverableDataAccessException | DataAccessResourceFailureException e) {
				System.out.println("again in a second: " + e.getMessage());
				pause();
			}
		}
	}

	static void run(String uri, String queue) {
		PGSimpleDataSource source = new PGSimpleDataSource(); // a pool, in an application
		source.setURL(System.getenv("JDBC_URL"));
		JdbcTemplate db = new JdbcTemplate(source);
		TransactionTemplate transaction = new TransactionTemplate(new JdbcTransactionManager(source));

		CachingConnectionFactory broker = new CachingConnectionFactory(URI.create(uri));
		broker.setRequestedHeartBeat(30);
		SimpleMessageListenerContainer container = new SimpleMessageListenerContainer(broker);
		container.setQueueNames(queue);
		container.setPrefetchCount(50);
		// it acknowledges when the listener returns, which is after the commit, and gives back what it throws
		container.setMessageListener(message -> handle(transaction, db, message));
		container.afterPropertiesSet();
		container.start(); // and it connects again by itself
		System.out.println("consuming");
	}
	// [/once]

	private static void pause() {
		try {
			Thread.sleep(1000);
		} catch (InterruptedException e) {
			Thread.currentThread().interrupt();
			throw new IllegalStateException(e);
		}
	}
}
