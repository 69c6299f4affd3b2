/*-------------------------------------------------------------------------
 *
 * setting_file.h
 *		Reads a file that a setting names.
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_SETTING_FILE_H
#define OUTBOX_SETTING_FILE_H

#include <sys/types.h>

typedef enum OutboxFileError
{
	OUTBOX_FILE_FINE,
	OUTBOX_FILE_NOT_OPENED,		/* errno says why */
	OUTBOX_FILE_NOT_PLAIN,
	OUTBOX_FILE_NOT_OURS,		/* of a secret */
	OUTBOX_FILE_NOT_PRIVATE,	/* of a secret */
	OUTBOX_FILE_NOT_READ,		/* errno says why */
	OUTBOX_FILE_TOO_LARGE
} OutboxFileError;

/*
 * Puts all of the file into content, which has size bytes.  A secret must be a file
 * of the server's user or of root, and nobody else may read or change it.  Returns
 * the number of bytes, or -1 with *file_error set.  It never waits for whoever holds the
 * other end of a pipe, and throws nothing, so that it may be called while a
 * connection is made.
 */
extern ssize_t outbox_setting_file_read(const char *path, bool secret,
										char *content, size_t size,
										OutboxFileError *file_error);

/* In words that fit behind "file X: "; right after the error, for errno's sake. */
extern const char *outbox_file_error_text(OutboxFileError file_error);

#endif							/* OUTBOX_SETTING_FILE_H */
