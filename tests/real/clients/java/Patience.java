/** How long anything may take in a test: BARNABAS_TEST_PATIENCE in seconds, as tests/harness/waiting.py sets it. */
public class Patience {
    public static final long MS = (long) (1000 * Double.parseDouble(System.getenv().getOrDefault("BARNABAS_TEST_PATIENCE", "90")));
}
