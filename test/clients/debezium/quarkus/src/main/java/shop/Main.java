package shop;

import jakarta.inject.Inject;

import io.quarkus.runtime.QuarkusApplication;
import io.quarkus.runtime.annotations.QuarkusMain;

/** Three orders that are committed, each with its event, one transaction that is rolled back, and a hundred orders in one. */
@QuarkusMain
public class Main implements QuarkusApplication {
    @Inject
    OrderService service;

    @Override
    public int run(String... args) {
        for (String customer : new String[] { "Zoë", "O'Hara", "€ 😀 \\ \"" }) {
            service.order(customer, 1, false);
        }
        try {
            service.order("nobody", 2, true);
            return 1;
        }
        catch (IllegalStateException e) {
            System.out.println("rolled back: " + e.getMessage());
        }
        service.order("many", 100, false);
        return 0;
    }
}
