/*-------------------------------------------------------------------------
 *
 * test_passfile.c
 *		Unit tests of src/config/passfile.c.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "check.h"
#include "settings.h"
#include "uri.h"

static char path[64];

char	   *outbox_passfile = path;
char	   *outbox_tls_cert_file = "";
int			outbox_auth_mechanism = OUTBOX_AUTH_PLAIN;

static void
write_file(const char *content, size_t len, mode_t mode)
{
	FILE	   *file;

	/* only root could write to one that nobody may write to */
	unlink(path);
	file = fopen(path, "w");
	if (file == NULL || fwrite(content, 1, len, file) != len ||
		fclose(file) != 0 || chmod(path, mode) != 0)
	{
		perror(path);
		exit(1);
	}
}

/* Looks up in a file with that content; NULL means that it must not match. */
static void
finds(const char *content, const char *host, int port, const char *vhost,
	  const char *user, const char *expected)
{
	char	   *password = NULL;
	OutboxReason reason;
	const char *problem;

	write_file(content, strlen(content), 0600);
	problem = outbox_passfile_lookup(path, host, port, vhost, user, &password,
									 &reason);
	if (expected != NULL)
		check(problem == NULL && password != NULL &&
			  reason == OUTBOX_REASON_NONE &&
			  strcmp(password, expected) == 0, "%s:%d:%s:%s gives %s", host,
			  port, vhost, user, expected);
	else
		check(problem != NULL && password == NULL &&
			  reason == OUTBOX_REASON_PASSFILE_NO_LINE &&
			  strstr(problem, "no line") != NULL &&
			  strstr(problem, "s3cret") == NULL,
			  "%s:%d:%s:%s gives nothing", host, port, vhost, user);
}

static void
test_matching(void)
{
	const char *file =
		"# h:5672:/:app:commented\n"
		"\n"
		"h:5672:/:app:one\n"
		"h:5672:/:app:never\n"
		"*:*:orders:app:two\n"
		"h:5673:*:*:th\\:ree\\\\\r\n"
		"\\:\\:1:*:/:app:six\n"
		"\\*:*:/:star:s3cret\n"
		"short:5672\n"
		"e:5672:/:app:\n"
		"last:*:*:*:end";

	finds(file, "h", 5672, "/", "app", "one");
	finds(file, "other", 1, "orders", "app", "two");
	finds(file, "h", 5673, "x", "y", "th:ree\\");
	finds(file, "::1", 5672, "/", "app", "six");
	finds(file, "e", 5672, "/", "app", "");
	finds(file, "last", 1, "v", "u", "end");
	finds(file, "*", 1, "/", "star", "s3cret");
	finds(file, "any", 1, "/", "star", NULL);
	finds(file, "short", 5672, "", "", NULL);
	finds(file, "h", 567, "/", "app", NULL);
	finds(file, "H", 5672, "/", "app", NULL);
	finds(file, "h", 5672, "/", "ap", NULL);
	finds(file, "h", 5672, "/", "apple", NULL);
	finds("", "h", 5672, "/", "app", NULL);
	finds("h:5672:/:app", "h", 5672, "/", "app", NULL);
	finds("h:5672:/:app\\", "h", 5672, "/", "app", NULL);
	/* quoting at an end, where there is nothing to quote */
	finds("h:5672:/:app:one\\", "h", 5672, "/", "app", "one\\");
	finds("h:5672:/:app:one\\\n", "h", 5672, "/", "app", "one\\");
	finds("\\", "", 0, "", "", NULL);
	finds("*", "h", 5672, "/", "app", NULL);
	finds("*:", "h", 5672, "/", "app", NULL);
	finds("*:*:*:*", "h", 5672, "/", "app", NULL);
	finds("::::", "", 0, "", "", NULL);
	/* ends of lines, and no end of the last */
	finds("\r\n\r\nh:5672:/:app:one\r", "h", 5672, "/", "app", "one");
	finds("\n\n\n", "h", 5672, "/", "app", NULL);
	/* what Windows puts in front is no host's name */
	finds("\xef\xbb\xbfh:5672:/:app:one", "h", 5672, "/", "app", NULL);
}

/* One whose password is not to be printed, for its length or its bytes. */
static void
finds_all_of(const char *password, const char *text)
{
	static const char start[] = "*:*:*:*:";
	static char content[65536 + 1];
	char	   *found = NULL;
	OutboxReason reason;

	strcpy(content, start);
	strcat(content, password);
	write_file(content, strlen(content), 0600);
	check(outbox_passfile_lookup(path, "h", 1, "/", "u", &found, &reason) == NULL &&
		  strcmp(found, password) == 0, "%s", text);
}

static void
test_odd_lines(void)
{
	static char fill[65536 + 1];

	/* as long as the file may be */
	memset(fill, 'p', sizeof(fill) - 1 - strlen("*:*:*:*:"));
	finds_all_of(fill, "a password of 64 kB");
	finds_all_of("\xff\xfe \x01\t:\xc3", "a password of any bytes");
	memset(fill, ':', sizeof(fill) - 1);
	finds(fill, "h", 5672, "/", "app", NULL);
	memset(fill, '\\', sizeof(fill) - 1);
	finds(fill, "h", 5672, "/", "app", NULL);
}

/* Each beginning of a file with all that is special in it. */
static void
test_cut_short(void)
{
	static const char file[] = "#c\r\n*:\\:1:\\/:a\\\\b:p\\:w\\";
	size_t		len;

	for (len = 0; len < strlen(file); len++)
	{
		char	   *password = NULL;
		OutboxReason reason;
		const char *problem;

		write_file(file, len, 0600);
		problem = outbox_passfile_lookup(path, "h", 1, "/", "a\\b", &password,
										 &reason);
		if ((problem == NULL) != (password != NULL))
			break;
	}
	check(len == strlen(file), "each beginning of a file, up to %d bytes",
		  (int) len);
}

static void
fails(OutboxReason expected, const char *word, const char *text)
{
	char	   *password = NULL;
	OutboxReason reason;
	const char *problem = outbox_passfile_lookup(path, "h", 1, "/", "u",
												 &password, &reason);

	check(problem != NULL && password == NULL && reason == expected &&
		  strstr(problem, word) != NULL, "%s", text);
	if (problem != NULL)
		printf("# %s\n", problem);
}

static void
test_files(void)
{
	static const char line[] = "*:*:*:*:s3cret\n";
	static char large[70000];
	char	   *password = NULL;
	OutboxReason reason;

	write_file(line, strlen(line), 0400);
	check(outbox_passfile_lookup(path, "h", 1, "/", "u", &password, &reason) == NULL &&
		  strcmp(password, "s3cret") == 0, "a file that only we may read");
	write_file(line, strlen(line), 0640);
	fails(OUTBOX_REASON_PASSFILE_MODE, "access", "a file that the group may read");
	write_file(line, strlen(line), 0602);
	fails(OUTBOX_REASON_PASSFILE_MODE, "access", "a file that others may write");
	memset(large, '#', sizeof(large));
	write_file(large, sizeof(large), 0600);
	fails(OUTBOX_REASON_PASSFILE_UNREADABLE, "64 kB", "a file that is too large");
	write_file("*:*:*:*:s3c\0ret\n", 16, 0600);
	fails(OUTBOX_REASON_PASSFILE_UNREADABLE, "zero byte", "a file with a zero byte");
	write_file("\xff\xfe*\0:\0", 6, 0600);
	fails(OUTBOX_REASON_PASSFILE_UNREADABLE, "zero byte", "a file of UTF-16");
	unlink(path);
	fails(OUTBOX_REASON_PASSFILE_MISSING, "could not be opened", "no file");
	if (mkfifo(path, 0600) == 0)
		fails(OUTBOX_REASON_PASSFILE_UNREADABLE, "plain file", "a pipe, without waiting for its other end");
	unlink(path);
	if (mkdir(path, 0700) == 0)
		fails(OUTBOX_REASON_PASSFILE_UNREADABLE, "plain file", "a directory");
	rmdir(path);
	if (symlink("/dev/zero", path) == 0)
		fails(OUTBOX_REASON_PASSFILE_UNREADABLE, "plain file", "a device");
	unlink(path);
}

/* As Kubernetes makes them; what it leads to is what counts. */
static void
test_link(void)
{
	static const char line[] = "*:*:*:*:s3cret\n";
	char		target[sizeof(path) + 8];
	char	   *password = NULL;
	OutboxReason reason;

	write_file(line, strlen(line), 0600);
	snprintf(target, sizeof(target), "%s.target", path);
	if (rename(path, target) != 0 || symlink(target, path) != 0)
	{
		perror(path);
		exit(1);
	}
	check(outbox_passfile_lookup(path, "h", 1, "/", "u", &password, &reason) == NULL &&
		  strcmp(password, "s3cret") == 0, "a symbolic link");
	chmod(target, 0644);
	fails(OUTBOX_REASON_PASSFILE_MODE, "access", "a symbolic link to a file that others may read");
	unlink(target);
	fails(OUTBOX_REASON_PASSFILE_MISSING, "could not be opened", "a symbolic link to nothing");
	unlink(path);
	if (symlink(path, path) == 0)
		fails(OUTBOX_REASON_PASSFILE_UNREADABLE, "could not be opened", "a symbolic link to itself");
	unlink(path);
}

/* However it is readable to us: an access list, or a capability of ours. */
static void
test_file_of_somebody(void)
{
	static const char line[] = "*:*:*:*:s3cret\n";

	if (geteuid() != 0)
	{
		printf("# not root, who can read a file of somebody else's\n");
		return;
	}
	write_file(line, strlen(line), 0600);
	if (chown(path, 65534, 65534) != 0)
	{
		perror(path);
		exit(1);
	}
	fails(OUTBOX_REASON_PASSFILE_MODE, "another user (uid 65534)", "a file of somebody else's");
	unlink(path);
}

/* A secret of Kubernetes belongs to root and to a group that the server is in. */
static void
test_file_of_root(void)
{
	static const char line[] = "*:*:*:*:s3cret\n";
	const uid_t nobody = 65534;
	char	   *password = NULL;
	OutboxReason reason;

	if (geteuid() != 0)
	{
		printf("# not root, who alone can make a file of root's\n");
		return;
	}
	write_file(line, strlen(line), 0640);
	if (chown(path, 0, nobody) != 0 || setegid(nobody) != 0 || seteuid(nobody) != 0)
	{
		perror("cannot become somebody else");
		exit(1);
	}
	check(outbox_passfile_lookup(path, "h", 1, "/", "u", &password, &reason) == NULL &&
		  strcmp(password, "s3cret") == 0, "a file of root's that our group may read");
	if (seteuid(0) != 0 || chmod(path, 0660) != 0 || seteuid(nobody) != 0)
		exit(1);
	fails(OUTBOX_REASON_PASSFILE_MODE, "access", "a file of root's that our group may write");
	if (seteuid(0) != 0 || chmod(path, 0644) != 0 || seteuid(nobody) != 0)
		exit(1);
	fails(OUTBOX_REASON_PASSFILE_MODE, "access", "a file of root's that everybody may read");
	if (seteuid(0) != 0 || chown(path, nobody, nobody) != 0 || chmod(path, 0640) != 0 || seteuid(nobody) != 0)
		exit(1);
	fails(OUTBOX_REASON_PASSFILE_MODE, "access", "a file of our own that our group may read");
	if (seteuid(0) != 0 || setegid(0) != 0)
		exit(1);
	unlink(path);
}

static void
test_no_file(void)
{
	char	   *password = NULL;
	OutboxReason reason;

	check(outbox_passfile_lookup("", "h", 1, "/", "guest", &password, &reason) == NULL &&
		  strcmp(password, "guest") == 0, "guest needs no file");
	check(outbox_passfile_lookup(NULL, "h", 1, "/", "guest", &password, &reason) == NULL,
		  "nor does a file that is not set at all");
	check(outbox_passfile_lookup("", "h", 1, "/", "app", &password, &reason) != NULL &&
		  password == NULL && reason == OUTBOX_REASON_PASSFILE_NO_LINE,
		  "everybody else does");
}

int
main(void)
{
	snprintf(path, sizeof(path), "/tmp/outbox_test_passfile.%d", (int) getpid());
	test_matching();
	test_odd_lines();
	test_cut_short();
	test_files();
	test_link();
	test_file_of_somebody();
	test_file_of_root();
	test_no_file();
	return done();
}
