/*-------------------------------------------------------------------------
 *
 * test_uri.c
 *		Unit tests of src/config/uri.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "check.h"
#include "uri.h"

static OutboxUri uri;

/* Parses, and compares with what must come out. */
static void
accepts(const char *text, bool tls, const char *user, const char *vhost,
		int nhosts)
{
	const char *problem = outbox_uri_parse(text, &uri);

	if (!check(problem == NULL, "accepts %s", text))
	{
		printf("# %s\n", problem);
		return;
	}
	check(uri.tls == tls && strcmp(uri.user, user) == 0 &&
		  strcmp(uri.vhost, vhost) == 0 && uri.nhosts == nhosts,
		  "  and reads user %s, virtual host %s", user, vhost);
}

static void
host_is(int n, const char *host, int port)
{
	check(n < uri.nhosts && strcmp(uri.hosts[n].host, host) == 0 &&
		  uri.hosts[n].port == port, "  and host %d is %s port %d", n, host, port);
}

/* Refuses with a message that has the word and does not repeat a secret. */
static void
refuses(const char *text, const char *word)
{
	const char *problem = outbox_uri_parse(text, &uri);

	check(problem != NULL && strstr(problem, word) != NULL,
		  "refuses \"%s\": %s", text, problem != NULL ? problem : "(it did not)");
	check(problem == NULL || strstr(problem, "s3cret") == NULL,
		  "  without repeating a password");
}

static void
test_accepted(void)
{
	accepts("amqp://localhost", false, "guest", "/", 1);
	host_is(0, "localhost", 5672);
	accepts("amqps://broker.example.com/", true, "guest", "/", 1);
	host_is(0, "broker.example.com", 5671);
	accepts("AMQP://app@h:1234/orders", false, "app", "orders", 1);
	host_is(0, "h", 1234);
	accepts("amqp://a%40b%3Ac@h/%2f", false, "a@b:c", "/", 1);
	accepts("amqp://h/%C3%A9t%C3%A9", false, "guest", "\xc3\xa9t\xc3\xa9", 1);
	accepts("amqp://h/a%40b", false, "guest", "a@b", 1);
	accepts("amqp://h/a@b", false, "guest", "a@b", 1);
	accepts("amqp://u@h1,h2:5673,[::1]:5674,[fe80::1%eth0]/v", false, "u", "v", 4);
	host_is(0, "h1", 5672);
	host_is(1, "h2", 5673);
	host_is(2, "::1", 5674);
	host_is(3, "fe80::1%eth0", 5672);
	accepts("amqp://10.0.0.1:65535", false, "guest", "/", 1);
	accepts("amqp://h1,h2,h3,h4,h5,h6,h7,h8,h9,h10,h11,h12,h13,h14,h15,h16",
			false, "guest", "/", 16);
}

static void
test_passwords(void)
{
	refuses("amqp://user:s3cret@host", "password");
	refuses("amqp://user:s3cret/more@host/v", "password");
	refuses("amqp://user:s3cret@more@host/v", "password");
	refuses("amqp://user:s3cret?@host", "password");
	refuses("amqp://user:@host", "password");
	refuses("amqp://:s3cret@host", "password");
	refuses("amqp://user:s3cret", "port");
	refuses("amqp://host?password=s3cret", "parameters");
	refuses("http://user:s3cret@host", "begin with");
	refuses("user:s3cret@host", "begin with");
}

static void
test_refused(void)
{
	refuses("", "begin with");
	refuses("amqp:/host", "begin with");
	refuses("amqp://", "empty");
	refuses("amqp:///vhost", "empty");
	refuses("amqp://@host", "user name");
	refuses("amqp://a%00b@host", "escape");
	refuses("amqp://a%4", "character");
	refuses("amqp://a%4@host", "escape");
	refuses("amqp://a%zz@host", "escape");
	refuses("amqp://host,", "empty");
	refuses("amqp://,host", "empty");
	refuses("amqp://host:", "port");
	refuses("amqp://host:0", "port");
	refuses("amqp://host:65536", "port");
	refuses("amqp://host:99999999999", "port");
	refuses("amqp://host:-1", "port");
	refuses("amqp://host:+1", "port");
	refuses("amqp://host:5672x", "port");
	refuses("amqp://::1", "empty");
	refuses("amqp://fe80::1", "brackets");
	refuses("amqp://[::1", "bracket");
	refuses("amqp://[]", "empty");
	refuses("amqp://[::1]5672", "port");
	refuses("amqp://ho st", "blank");
	refuses("amqp://host\t", "blank");
	refuses("amqp://h\xc3\xb6st", "character");
	refuses("amqp://host/a/b", "%2F");
	refuses("amqp://host/%", "escape");
	refuses("amqp://host/v#f", "parameters");
	refuses("amqp://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q", "16");
}

static void
test_lengths(void)
{
	char		text[600];
	char		vhost[300];

	memset(vhost, 'v', sizeof(vhost));
	vhost[255] = '\0';
	snprintf(text, sizeof(text), "amqp://h/%s", vhost);
	check(outbox_uri_parse(text, &uri) == NULL && strlen(uri.vhost) == 255,
		  "a virtual host of 255 bytes");
	snprintf(text, sizeof(text), "amqp://h/v%s", vhost);
	check(outbox_uri_parse(text, &uri) != NULL, "but not of 256");
	snprintf(text, sizeof(text), "amqp://u%s@h", vhost);
	check(outbox_uri_parse(text, &uri) != NULL, "nor such a user name");
}

static void
hides(const char *text, const char *expected)
{
	char		copy[128];
	const char *before = outbox_uri_parse(text, &uri);
	const char *after;

	strcpy(copy, text);
	outbox_uri_hide_password(copy);
	after = outbox_uri_parse(copy, &uri);
	check(strcmp(copy, expected) == 0, "shows %s as %s", text, copy);
	check(before != NULL && after != NULL && strcmp(before, after) == 0,
		  "  and it is refused as before");
}

static void
test_hidden(void)
{
	static const char *const pieces[] = {
		"amqp://", "amqps://", "://", ":", "/", "@", ",", "[", "]", "%", "%41",
		"%zz", "?", "#", " ", "h", "5672", "user", "s3cret", "\xc3\xa4"
	};
	int			accepted = 0;
	int			repeated = 0;

	hides("amqp://user:s3cret@h/v", "amqp://user:******@*/*");
	hides("amqp://user:s3/c@ret@h:1/v", "amqp://user:**/*@***@*:*/*");
	hides("amqp://user:s3cret", "amqp://user:******");
	hides("user:s3cret@h", "user:******@*");
	hides("http://user:s3cret@h", "http://user:******@*");
	hides("amqp://user:s3 cret@h", "amqp://user:** ****@*");
	hides("amqp://h/a/b", "amqp://h/a/b");

	/* whatever it is, it does not become one that is used */
	srand(1);
	for (int i = 0; i < 50000; i++)
	{
		char		text[128] = "";
		const char *secret;
		int			n = 1 + rand() % 9;

		if (rand() % 4 != 0)
			strcpy(text, pieces[rand() % 2]);
		while (n-- > 0)
			strcat(text, pieces[rand() % (sizeof(pieces) / sizeof(pieces[0]))]);
		if (outbox_uri_parse(text, &uri) == NULL)
			continue;
		outbox_uri_hide_password(text);
		if (outbox_uri_parse(text, &uri) == NULL)
			accepted++;
		secret = strstr(text, ":s3cret");
		if (secret != NULL)
			repeated++;
	}
	check(accepted == 0, "of 50000 random texts, %d became valid", accepted);
	check(repeated == 0, "of 50000 random texts, %d show a password", repeated);
}

int
main(void)
{
	test_accepted();
	test_passwords();
	test_refused();
	test_lengths();
	test_hidden();
	return done();
}
