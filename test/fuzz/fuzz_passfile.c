/*-------------------------------------------------------------------------
 *
 * fuzz_passfile.c
 *		outbox.passfile: the password found is that which reading it field by
 *		field finds.
 *
 * The input is host, virtual host and user, each ended by a zero, and the file.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fuzz.h"
#include "input.h"
#include "pg.h"
#include "uri.h"

#define PORT		5672
#define LARGEST		65536

static int	file = -1;
static char path[64];

int
LLVMFuzzerInitialize(int *argc, char ***argv)
{
	file = memfd_create("passfile", MFD_CLOEXEC);
	if (file < 0 || fchmod(file, 0600) != 0)
	{
		perror("memfd");
		exit(2);
	}
	(void) snprintf(path, sizeof(path), "/proc/self/fd/%d", file);
	return 0;
}

/* ------------------------------------------------------------------- the oracle */

/* Takes a field off *line, without its quotes; says whether a colon ended it. */
static bool
take_field(const char **line, char *field, bool *any)
{
	const char *start = *line;
	char	   *out = field;

	while (**line != '\0' && **line != ':')
	{
		if (**line == '\\' && (*line)[1] != '\0')
			(*line)++;
		*out++ = *(*line)++;
	}
	*out = '\0';
	*any = *line - start == 1 && *start == '*';
	if (**line != ':')
		return false;
	(*line)++;
	return true;
}

/* The password of that line, or NULL when it is another's. */
static char *
password_of(const char *line, const char *const *wanted)
{
	char	   *field;
	bool		any;

	if (line[0] == '#')
		return NULL;
	field = palloc(strlen(line) + 1);	/* freed with the input's context */
	for (int i = 0; i < 4; i++)
		if (!take_field(&line, field, &any) || (!any && strcmp(field, wanted[i]) != 0))
			return NULL;
	for (char *out = field;; line++)
	{
		if (*line == '\\' && line[1] != '\0')
			line++;
		*out = *line;
		if (*out++ == '\0')
			return field;
	}
}

static char *
expected_password(char *content, const char *const *wanted)
{
	char	   *line = content;

	while (line != NULL)
	{
		char	   *end = strchr(line, '\n');
		size_t		len = end != NULL ? (size_t) (end - line) : strlen(line);
		char	   *found;

		if (len > 0 && line[len - 1] == '\r')
			len--;
		found = password_of(pnstrdup(line, len), wanted);
		if (found != NULL)
			return found;
		line = end != NULL ? end + 1 : NULL;
	}
	return NULL;
}

/* ------------------------------------------------------------------------ entry */

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	Input		in = {data, data + size};
	const char *text[3];
	const char *wanted[4];
	char	   *password;
	char	   *expected;
	OutboxReason reason;
	const char *problem;
	size_t		len;

	fuzz_memory_reset();
	for (int i = 0; i < 3; i++)
	{
		len = input_text(&in, &text[i]);
		text[i] = pnstrdup(text[i], len);
	}
	len = in.end - in.at;
	if (ftruncate(file, 0) != 0 || pwrite(file, in.at, len, 0) != (ssize_t) len)
		return 0;

	problem = outbox_passfile_lookup(path, text[0], PORT, text[1], text[2], &password,
									 &reason);
	wanted[0] = text[0];
	wanted[1] = "5672";
	wanted[2] = text[1];
	wanted[3] = text[2];
	/* a zero is in no text */
	expected = len > LARGEST || memchr(in.at, '\0', len) != NULL ? NULL :
		expected_password(pnstrdup((const char *) in.at, len), wanted);
	fuzz_check((problem == NULL) == (password != NULL) &&
			   (problem == NULL) == (reason == OUTBOX_REASON_NONE), "neither nor");
	fuzz_check((expected == NULL) == (password == NULL), "expected %s, got %s",
			   expected ? "a password" : "none", password ? "one" : "none");
	fuzz_check(expected == NULL || strcmp(expected, password) == 0, "another password");
	fuzz_memory_reset();
	return 0;
}
