package shop;

import org.springframework.boot.CommandLineRunner;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;

/** Three orders that are committed, each with its event, one transaction that is rolled back, and a hundred orders in one. */
@SpringBootApplication
public class Main implements CommandLineRunner {
    private final OrderService service;

    Main(OrderService service) {
        this.service = service;
    }

    public static void main(String[] args) {
        SpringApplication.run(Main.class, args);
    }

    @Override
    public void run(String... args) throws Exception {
        for (String customer : new String[] { "Zoë", "O'Hara", "€ 😀 \\ \"" }) {
            service.order(customer, 1, false);
        }
        try {
            service.order("nobody", 2, true);
        }
        catch (IllegalStateException e) {
            System.out.println("rolled back: " + e.getMessage());
        }
        service.order("many", 100, false);
    }
}
