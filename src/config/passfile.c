/*-------------------------------------------------------------------------
 *
 * passfile.c
 *		What the relay logs in with: the password in outbox.passfile, or the client
 *		certificate.
 *
 * The rules are libpq's for .pgpass, except that a file that others may read is an
 * error and not merely ignored with a warning; see setting_file.c, too.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "setting_file.h"
#include "settings.h"
#include "uri.h"

#define PASSFILE_MAX_BYTES 65536
#define NFIELDS 4				/* before the password */

/* Looked at again for the text alone: it has been refused. */
static const char *
belongs_to_another(const char *path)
{
	struct stat st;

	return stat(path, &st) == 0 ?
		psprintf("Password file \"%s\" belongs to another user (uid %u) than the server's or root.",
				 path, (unsigned int) st.st_uid) :
		psprintf("Password file \"%s\" belongs to another user than the server's or root.",
				 path);
}

static const char *
error_text(const char *path, OutboxFileError file_error, int error,
		   OutboxReason *reason)
{
	*reason = OUTBOX_REASON_PASSFILE_UNREADABLE;
	switch (file_error)
	{
		case OUTBOX_FILE_FINE:
			break;
		case OUTBOX_FILE_NOT_OPENED:
			if (error == ENOENT || error == ENOTDIR)
				*reason = OUTBOX_REASON_PASSFILE_MISSING;
			return psprintf("Password file \"%s\" could not be opened: %s.",
							path, strerror(error));
		case OUTBOX_FILE_NOT_PLAIN:
			return psprintf("Password file \"%s\" is not a plain file.", path);
		case OUTBOX_FILE_NOT_OURS:
			*reason = OUTBOX_REASON_PASSFILE_MODE;
			return belongs_to_another(path);
		case OUTBOX_FILE_NOT_PRIVATE:
			*reason = OUTBOX_REASON_PASSFILE_MODE;
			return psprintf("Password file \"%s\" has group or world access; its permissions must be u=rw (0600) or less, or u=rw,g=r (0640) or less if it belongs to root.",
							path);
		case OUTBOX_FILE_NOT_READ:
			return psprintf("Password file \"%s\" could not be read: %s.", path,
							strerror(error));
		case OUTBOX_FILE_TOO_LARGE:
			return psprintf("Password file \"%s\" is larger than 64 kB.", path);
	}
	*reason = OUTBOX_REASON_NONE;
	return NULL;
}

/* Fills content, which has room for one byte more than the largest file. */
static const char *
read_file(const char *path, char *content, OutboxReason *reason)
{
	OutboxFileError file_error;
	ssize_t		len = outbox_setting_file_read(path, true, content,
											   PASSFILE_MAX_BYTES, &file_error);

	if (len < 0)
		return error_text(path, file_error, errno, reason);

	/*
	 * it would end the file for us, and cut a password short (UTF-16 has
	 * many)
	 */
	if (memchr(content, '\0', len) != NULL)
	{
		*reason = OUTBOX_REASON_PASSFILE_UNREADABLE;
		return psprintf("Password file \"%s\" contains a zero byte, so it is no text.", path);
	}
	content[len] = '\0';
	*reason = OUTBOX_REASON_NONE;
	return NULL;
}

/*
 * Compares the field at line with value, '\' quoting the next character.
 * Returns what follows the field's colon, or NULL when it does not match.
 */
static const char *
match_field(const char *line, const char *value)
{
	if (line[0] == '*' && line[1] == ':')
		return line + 2;
	while (*line != '\0' && *line != ':')
	{
		if (*line == '\\' && line[1] != '\0')
			line++;
		if (*line++ != *value++)
			return NULL;
	}
	return *line == ':' && *value == '\0' ? line + 1 : NULL;
}

static char *
unquote(const char *text)
{
	char	   *result = palloc(strlen(text) + 1);
	char	   *out = result;

	while (*text != '\0')
	{
		if (*text == '\\' && text[1] != '\0')
			text++;
		*out++ = *text++;
	}
	*out = '\0';
	return result;
}

/* The quoted password of the first line that matches, or NULL. */
static const char *
find_password(char *content, const char *const *fields)
{
	char	   *next = content;

	while (next != NULL && *next != '\0')
	{
		char	   *line = next;
		const char *rest = line;
		char	   *end = strchr(line, '\n');
		int			i;

		next = end != NULL ? end + 1 : NULL;
		if (end == NULL)
			end = line + strlen(line);
		if (end > line && end[-1] == '\r')
			end--;
		*end = '\0';
		if (line[0] == '#')
			continue;
		for (i = 0; i < NFIELDS && rest != NULL; i++)
			rest = match_field(rest, fields[i]);
		if (rest != NULL)
			return rest;
	}
	return NULL;
}

const char *
outbox_passfile_lookup(const char *path, const char *host, int port,
					   const char *vhost, const char *user, char **password,
					   OutboxReason *reason)
{
	char		port_text[16];
	const char *fields[NFIELDS] = {host, port_text, vhost, user};
	char	   *content;
	const char *quoted;
	const char *problem;

	*password = NULL;
	*reason = OUTBOX_REASON_NONE;
	if (path == NULL || path[0] == '\0')
	{
		if (strcmp(user, "guest") != 0)
		{
			*reason = OUTBOX_REASON_PASSFILE_NO_LINE;
			return "There is no password for this user, because outbox.passfile is not set.";
		}
		*password = pstrdup("guest");
		return NULL;
	}

	snprintf(port_text, sizeof(port_text), "%d", port);
	content = palloc(PASSFILE_MAX_BYTES + 2);
	problem = read_file(path, content, reason);
	if (problem == NULL)
	{
		quoted = find_password(content, fields);
		if (quoted != NULL)
			*password = unquote(quoted);
		else
		{
			*reason = OUTBOX_REASON_PASSFILE_NO_LINE;
			problem = psprintf("Password file \"%s\" has no line for host \"%s\", port %d, virtual host \"%s\" and user \"%s\".",
							   path, host, port, vhost, user);
		}
		explicit_bzero(content, PASSFILE_MAX_BYTES + 2);
	}
	pfree(content);
	return problem;
}

/* Who the broker takes us for must be shown by TLS, and to us it must be TLS. */
static const char *
check_external(const OutboxUri *uri)
{
	if (!uri->tls)
		return "outbox.auth_mechanism is external, which needs TLS, and outbox.broker_uri begins with amqp://.";
	if (outbox_tls_cert_file[0] == '\0')
		return "outbox.auth_mechanism is external, and there is no client certificate to log in with, because outbox.tls_cert_file is not set.";
	return NULL;
}

const char *
outbox_login_password(const OutboxUri *uri, int host, char **password,
					  OutboxReason *reason)
{
	const char *problem;

	if (outbox_auth_mechanism != OUTBOX_AUTH_EXTERNAL)
		return outbox_passfile_lookup(outbox_passfile, uri->hosts[host].host,
									  uri->hosts[host].port, uri->vhost,
									  uri->user, password, reason);
	problem = check_external(uri);
	*reason = problem == NULL ? OUTBOX_REASON_NONE : OUTBOX_REASON_MECHANISM;
	*password = problem == NULL ? pstrdup("") : NULL;
	return problem;
}
