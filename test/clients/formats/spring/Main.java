import com.fasterxml.jackson.databind.ObjectMapper;
import com.rabbitmq.client.LongString;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import org.springframework.amqp.core.Message;
import org.springframework.amqp.rabbit.annotation.EnableRabbit;
import org.springframework.amqp.rabbit.annotation.RabbitHandler;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.amqp.rabbit.config.SimpleRabbitListenerContainerFactory;
import org.springframework.amqp.rabbit.connection.CachingConnectionFactory;
import org.springframework.amqp.support.converter.DefaultJackson2JavaTypeMapper;
import org.springframework.amqp.support.converter.DefaultJacksonJavaTypeMapper;
import org.springframework.amqp.support.converter.Jackson2JsonMessageConverter;
import org.springframework.amqp.support.converter.JacksonJsonMessageConverter;
import org.springframework.amqp.support.converter.MessageConverter;
import org.springframework.context.annotation.AnnotationConfigApplicationContext;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;
import shop.orders.OrderCancelled;
import shop.orders.OrderCreated;

/**
 * Events of a queue, as listeners of Spring AMQP get them.
 *
 *     jackson2|jackson3 trusted|mapped PORT QUEUE N    one line of JSON for each: which handler, its object, the properties
 *
 * __TypeId__ is the name of a class in a trusted package, or what a mapping of names to classes has.
 */
public class Main {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final Map<String, Class<?>> MAPPED =
        Map.of("order.created", OrderCreated.class, "order.cancelled", OrderCancelled.class);
    private static String[] args;
    private static CountDownLatch left;

    public static void main(String[] given) throws Exception {
        args = given;
        left = new CountDownLatch(Integer.parseInt(args[4]));
        System.setProperty("queue", args[3]);
        try (var context = new AnnotationConfigApplicationContext(Application.class)) {
            if (!left.await(60, TimeUnit.SECONDS)) {
                throw new IllegalStateException(left.getCount() + " messages have not come");
            }
        }
    }

    @Configuration
    @EnableRabbit
    public static class Application {
        @Bean(destroyMethod = "destroy")
        CachingConnectionFactory connections() {
            return new CachingConnectionFactory("127.0.0.1", Integer.parseInt(args[2]));
        }

        @Bean
        MessageConverter converter() {
            boolean mapped = args[1].equals("mapped");

            if (args[0].equals("jackson3")) {
                var types = new DefaultJacksonJavaTypeMapper();
                types.setIdClassMapping(mapped ? MAPPED : Map.of());
                types.setTrustedPackages(mapped ? new String[0] : new String[] {"shop.orders"});
                var converter = new JacksonJsonMessageConverter();
                converter.setJavaTypeMapper(types);
                return converter;
            }
            var types = new DefaultJackson2JavaTypeMapper();
            types.setIdClassMapping(mapped ? MAPPED : Map.of());
            types.setTrustedPackages(mapped ? new String[0] : new String[] {"shop.orders"});
            var converter = new Jackson2JsonMessageConverter();
            converter.setJavaTypeMapper(types);
            return converter;
        }

        @Bean
        SimpleRabbitListenerContainerFactory rabbitListenerContainerFactory(
                CachingConnectionFactory connections, MessageConverter converter) {
            var factory = new SimpleRabbitListenerContainerFactory();

            factory.setConnectionFactory(connections);
            factory.setMessageConverter(converter);
            factory.setDefaultRequeueRejected(false);
            return factory;
        }

        @Bean
        Orders orders() {
            return new Orders();
        }
    }

    @RabbitListener(queues = "${queue}")
    public static class Orders {
        @RabbitHandler
        void created(OrderCreated event, Message message) throws Exception {
            print("created", event, message);
        }

        @RabbitHandler
        void cancelled(OrderCancelled event, Message message) throws Exception {
            print("cancelled", event, message);
        }

        @RabbitHandler(isDefault = true)
        void other(Object event, Message message) throws Exception {
            print("other", event instanceof byte[] ? "bytes" : event, message);
        }
    }

    private static void print(String handler, Object event, Message message) throws Exception {
        var properties = message.getMessageProperties();
        var shown = new LinkedHashMap<String, Object>();
        var headers = new LinkedHashMap<String, Object>();

        // what is longer than 1024 bytes is none to Spring, which leaves it as the client has it
        properties.getHeaders().forEach((name, value) -> headers.put(name, value instanceof LongString ? value.toString() : value));
        shown.put("handler", handler);
        shown.put("event", event);
        shown.put("id", properties.getMessageId());
        shown.put("type", properties.getType());
        shown.put("time", properties.getTimestamp().getTime() / 1000);
        shown.put("content_type", properties.getContentType());
        shown.put("content_encoding", properties.getContentEncoding());
        shown.put("headers", headers);
        System.out.println(JSON.writeValueAsString(shown));
        left.countDown();
    }
}
