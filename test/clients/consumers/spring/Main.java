import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import org.springframework.amqp.core.AcknowledgeMode;
import org.springframework.amqp.core.Binding;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.core.MessageProperties;
import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.rabbit.core.RabbitAdmin;
import org.springframework.amqp.rabbit.listener.SimpleMessageListenerContainer;
import org.springframework.amqp.rabbit.listener.api.ChannelAwareMessageListener;
import org.springframework.amqp.support.converter.Jackson2JsonMessageConverter;
import org.springframework.amqp.support.converter.JacksonJsonMessageConverter;
import org.springframework.amqp.support.converter.MessageConverter;
import org.springframework.amqp.support.converter.SimpleMessageConverter;

/**
 * What Spring AMQP hands out of each message of some queues, for test/clients/consumers.pl.
 *
 * usage: Main setup NAME           declares the queues that need arguments
 *        Main read QUEUE=N...      prints N deliveries of each, one JSON object a line
 *        Main once QUEUE           consumes, each message once (Once.java)
 *
 * The broker is in AMQP_URI.
 */
public final class Main {
	private static final ObjectMapper JSON = new ObjectMapper();
	private static final Map<String, MessageConverter> CONVERTERS = new LinkedHashMap<>();

	static {
		CONVERTERS.put("SimpleMessageConverter", new SimpleMessageConverter());
		CONVERTERS.put("Jackson2JsonMessageConverter", new Jackson2JsonMessageConverter());
		CONVERTERS.put("JacksonJsonMessageConverter", new JacksonJsonMessageConverter());
	}

	private Main() {}

	private static void setup(RabbitAdmin admin, String name) {
		Queue headers = QueueBuilder.durable(name + ".headers").build();
		admin.declareQueue(QueueBuilder.durable(name + ".priority").maxPriority(10).build());
		admin.declareQueue(QueueBuilder.durable(name + ".quorum").quorum().singleActiveConsumer().deliveryLimit(20)
			.deadLetterExchange("").deadLetterRoutingKey(name + ".dead").build());
		admin.declareQueue(QueueBuilder.durable(name + ".dead").build());
		admin.declareQueue(headers);
		admin.declareBinding(new Binding(headers.getName(), Binding.DestinationType.QUEUE, "headed", "",
			Map.of("x-match", "all", "region", "eu", "tier", 7, "vip", true)));
	}

	private static Map<String, Object> properties(MessageProperties p) {
		Map<String, Object> all = new LinkedHashMap<>();
		all.put("content_type", p.getContentType());
		all.put("content_encoding", p.getContentEncoding());
		all.put("delivery_mode", p.getReceivedDeliveryMode() == null ? null
			: org.springframework.amqp.core.MessageDeliveryMode.toInt(p.getReceivedDeliveryMode()));
		all.put("priority", p.getPriority());
		all.put("correlation_id", p.getCorrelationId());
		all.put("reply_to", p.getReplyTo());
		all.put("expiration", p.getExpiration());
		all.put("message_id", p.getMessageId());
		all.put("timestamp", p.getTimestamp());
		all.put("type", p.getType());
		all.put("user_id", p.getReceivedUserId());
		all.put("app_id", p.getAppId());
		all.values().removeIf(value -> value == null);
		all.replaceAll((name, value) -> Typed.typed(value));
		return all;
	}

	private static String converted(MessageConverter converter, Message message) {
		try {
			return converter.fromMessage(message).getClass().getSimpleName();
		} catch (RuntimeException e) {
			return e.getClass().getSimpleName();
		}
	}

	private static void show(String queue, Message message) throws Exception {
		MessageProperties p = message.getMessageProperties();
		Map<String, Object> said = new LinkedHashMap<>();
		Map<String, String> converted = new LinkedHashMap<>();

		CONVERTERS.forEach((name, converter) -> converted.put(name, converted(converter, message)));
		said.put("queue", queue);
		said.put("redelivered", p.getRedelivered());
		said.put("exchange", p.getReceivedExchange());
		said.put("routing_key", p.getReceivedRoutingKey());
		said.put("properties", properties(p));
		said.put("headers", Typed.typed(p.getHeaders()));
		said.put("body", Typed.body(message.getBody()));
		said.put("converted", converted);
		System.out.println(JSON.writeValueAsString(said));
	}

	private static void read(CachingConnectionFactory factory, String queue, int wanted) throws Exception {
		CountDownLatch left = new CountDownLatch(wanted);
		SimpleMessageListenerContainer container = new SimpleMessageListenerContainer(factory);

		container.setQueueNames(queue);
		container.setPrefetchCount(100);
		container.setAcknowledgeMode(AcknowledgeMode.MANUAL);
		container.setMessageListener((ChannelAwareMessageListener) (message, channel) -> {
			MessageProperties p = message.getMessageProperties();
			show(queue, message);
			if (queue.endsWith(".quorum") && !p.getRedelivered()) {
				channel.basicNack(p.getDeliveryTag(), false, true);
			} else {
				channel.basicAck(p.getDeliveryTag(), false);
			}
			left.countDown();
		});
		container.afterPropertiesSet();
		container.start();
		left.await();
		container.stop();
	}

	public static void main(String[] words) throws Exception {
		if (words[0].equals("once")) {
			Once.run(System.getenv("AMQP_URI"), words[1]);
			return;
		}
		CachingConnectionFactory factory = new CachingConnectionFactory(URI.create(System.getenv("AMQP_URI")));
		if (words[0].equals("setup")) setup(new RabbitAdmin(factory), words[1]);
		for (int i = 1; words[0].equals("read") && i < words.length; i++) {
			String[] parts = words[i].split("=");
			read(factory, parts[0], Integer.parseInt(parts[1]));
		}
		factory.destroy();
	}
}
