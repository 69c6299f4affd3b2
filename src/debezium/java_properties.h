/*-------------------------------------------------------------------------
 *
 * java_properties.h
 *		Text as java.util.Properties writes it (plain C).
 *
 *-------------------------------------------------------------------------
 */
#ifndef OUTBOX_JAVA_PROPERTIES_H
#define OUTBOX_JAVA_PROPERTIES_H

/*
 * Copies the value of a key into value, of size bytes, with its escapes resolved.  The
 * last one counts if there are several.  Returns false when there is none, or when it
 * does not fit or has other characters than ASCII.
 */
extern bool outbox_java_property(const char *text, const char *key, char *value,
								 size_t size);

#endif							/* OUTBOX_JAVA_PROPERTIES_H */
