/*-------------------------------------------------------------------------
 *
 * setting_file.c
 *		Reads a file that a setting names.
 *
 * The rules for secrets are libpq's and the server's for the keys of theirs: a
 * file of root's may be readable to a group, which is how Kubernetes gives a
 * secret to a pod that does not run as root.
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "setting_file.h"

/* Whoever owns the file can make us use what he likes, whatever its mode. */
static bool
is_ours(const struct stat *st)
{
	return st->st_uid == geteuid() || st->st_uid == 0;
}

/* The group of a file of root's is root's decision. */
static bool
is_private(const struct stat *st)
{
	mode_t		too_much = S_IRWXG | S_IRWXO;

	if (st->st_uid == 0 && geteuid() != 0)
		too_much &= ~S_IRGRP;
	return (st->st_mode & too_much) == 0;
}

static OutboxFileError
check(int fd, bool secret)
{
	struct stat st;

	if (fd < 0 || fstat(fd, &st) != 0)
		return OUTBOX_FILE_NOT_OPENED;
	if (!S_ISREG(st.st_mode))
		return OUTBOX_FILE_NOT_PLAIN;
	if (secret && !is_ours(&st))
		return OUTBOX_FILE_NOT_OURS;
	if (secret && !is_private(&st))
		return OUTBOX_FILE_NOT_PRIVATE;
	return OUTBOX_FILE_FINE;
}

ssize_t
outbox_setting_file_read(const char *path, bool secret, char *content,
						 size_t size, OutboxFileError *file_error)
{
	/* what was opened is checked, so that nobody can exchange it in between */
	int			fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC | O_NOCTTY);
	size_t		len = 0;
	ssize_t		got = 0;
	char		beyond;
	int			save_errno;

	*file_error = check(fd, secret);
	if (*file_error == OUTBOX_FILE_FINE)
	{
		while (len < size && (got = read(fd, content + len, size - len)) > 0)
			len += got;
		if (got >= 0 && len == size)
			got = read(fd, &beyond, 1);
		if (got < 0)
			*file_error = OUTBOX_FILE_NOT_READ;
		else if (got > 0)
			*file_error = OUTBOX_FILE_TOO_LARGE;
	}
	save_errno = errno;
	if (fd >= 0)
		close(fd);
	errno = save_errno;
	return *file_error == OUTBOX_FILE_FINE ? (ssize_t) len : -1;
}

const char *
outbox_file_error_text(OutboxFileError file_error)
{
	switch (file_error)
	{
		case OUTBOX_FILE_FINE:
			break;
		case OUTBOX_FILE_NOT_OPENED:
		case OUTBOX_FILE_NOT_READ:
			return strerror(errno);
		case OUTBOX_FILE_NOT_PLAIN:
			return "it is not a plain file";
		case OUTBOX_FILE_NOT_OURS:
			return "it belongs to another user than the server's or root";
		case OUTBOX_FILE_NOT_PRIVATE:
			return "it has group or world access; its permissions must be u=rw (0600) or less, or u=rw,g=r (0640) or less if it belongs to root";
		case OUTBOX_FILE_TOO_LARGE:
			return "it is too large";
	}
	return "nothing is wrong with it";
}
