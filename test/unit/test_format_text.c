/*
 * format_text.c: what texts of CloudEvents may be, and base64.
 */
#include "postgres.h"

#include "check.h"
#include "format_text.h"

static void
test_characters(void)
{
	static const char *const good[] = {
		"", "a", " ", "\x7e", "\xc2\xa0", "\xef\xb7\x8f", "\xef\xb7\xb0", "\xef\xbf\xbd",
		"\xf0\x9f\x98\x80", "\xf4\x8f\xbf\xbd"
	};
	static const char *const bad[] = {
		"\x01", "a\x1f", "\t", "\x7f", "\xc2\x80", "\xc2\x9f", "\xef\xb7\x90", "\xef\xb7\xaf",
		"\xef\xbf\xbe", "\xef\xbf\xbf", "\xf0\x9f\xbf\xbe", "\xf4\x8f\xbf\xbf", "x\xf4\x8f\xbf\xbfy"
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		check(outbox_is_attribute_text(good[i]), "good text %zu", i);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check(!outbox_is_attribute_text(bad[i]), "bad text %zu", i);
}

static void
test_uris(void)
{
	static const char *const references[] = {
		"/", "a", "a/b:c", "./a:b", "?a=b", "#f", "//h", "//u:p@h:1/p", "//[::1]", "//h:", "http://h",
		"urn:a:b", "a+b.c-1:x", "mailto:a@b", "/%C3%BC", "/a#b?c", "/~!$&'()*+,;=@:", "//"
	};
	static const char *const absolute[] = {
		"http://h", "http://h/p?q", "urn:a:b", "mailto:a@b", "A:", "http://[::1]:80/"
	};
	static const char *const neither[] = {
		"", " ", "a b", "/\xc3\xbc", ":a", "1:a", "a_b:c", "/%", "/%1", "/%1g", "/#a#b", "/[", "/]",
		"//[::1", "//[]", "//[::1]x", "//h:x", "//a[b]", "//u[@h", "//a@b@c", "a\"", "<a>", "{a}", "a|b", "a^b", "a`b", "a\\b"
	};

	for (size_t i = 0; i < sizeof(references) / sizeof(*references); i++)
		check(outbox_is_uri_reference(references[i]), "URI-reference %s", references[i]);
	for (size_t i = 0; i < sizeof(absolute) / sizeof(*absolute); i++)
		check(outbox_is_uri_reference(absolute[i]) && outbox_is_absolute_uri(absolute[i]),
			  "absolute URI %s", absolute[i]);
	for (size_t i = 0; i < sizeof(neither) / sizeof(*neither); i++)
		check(!outbox_is_uri_reference(neither[i]) && !outbox_is_absolute_uri(neither[i]),
			  "neither: %s", neither[i]);
	check(!outbox_is_absolute_uri("/a"), "relative");
	check(!outbox_is_absolute_uri("http://h/#f"), "with a fragment");
}

static void
test_media_types(void)
{
	static const char *const good[] = {
		"a/b", "application/json", "application/vnd.a+json; charset=utf-8", "a/b ; c=\"d e\""
	};
	static const char *const bad[] = {
		"", "a", "a/", "/b", "a b/c", "a/b c", "a/b,c/d", "a/b; \xc3\xbc=1", "\xc3\xbc/b", "a/b;\n"
	};
	static const char *const json[] = {
		"application/json", "text/json", "Application/JSON;charset=utf-8", "application/a+Json"
	};
	static const char *const other[] = {
		"application/jsonp", "json", "application/xjson", "text/plain;a=json", "text/plain", "a/json+b", ""
	};

	for (size_t i = 0; i < sizeof(good) / sizeof(*good); i++)
		check(outbox_is_media_type(good[i]), "media type %s", good[i]);
	for (size_t i = 0; i < sizeof(bad) / sizeof(*bad); i++)
		check(!outbox_is_media_type(bad[i]), "no media type %s", bad[i]);
	for (size_t i = 0; i < sizeof(json) / sizeof(*json); i++)
		check(outbox_is_json_media_type(json[i]), "JSON %s", json[i]);
	for (size_t i = 0; i < sizeof(other) / sizeof(*other); i++)
		check(!outbox_is_json_media_type(other[i]), "no JSON %s", other[i]);
}

static void
test_uuids(void)
{
	static const char *const none[] = {
		"", "x", "01890a5d-ac96-774b-bcce-b302099a805", "01890a5d-ac96-774b-bcce-b302099a80577",
		"01890a5dac96774bbcceb302099a8057", "{01890a5d-ac96-774b-bcce-b302099a8057}",
		"01890a5d-ac96-774b-bcce_b302099a8057", "01890a5g-ac96-774b-bcce-b302099a8057"
	};

	check(outbox_is_uuid("01890a5d-ac96-774b-bcce-b302099a8057"), "UUID");
	check(outbox_is_uuid("01890A5D-AC96-774B-BCCE-B302099A8057"), "UUID in capitals");
	for (size_t i = 0; i < sizeof(none) / sizeof(*none); i++)
		check(!outbox_is_uuid(none[i]), "no UUID %s", none[i]);
}

/* The examples of RFC 4648, and bytes beyond ASCII. */
static void
test_base64(void)
{
	static const struct
	{
		const char *bytes;
		const char *text;
	}			examples[] = {
		{"", ""}, {"f", "Zg=="}, {"fo", "Zm8="}, {"foo", "Zm9v"},
		{"foob", "Zm9vYg=="}, {"fooba", "Zm9vYmE="}, {"foobar", "Zm9vYmFy"},
		{"\xff\xfe\xfb", "//77"}
	};

	for (size_t i = 0; i < sizeof(examples) / sizeof(*examples); i++)
	{
		char		out[16] = "";
		size_t		len = strlen(examples[i].bytes);

		outbox_base64(examples[i].bytes, len, out);
		check(strcmp(out, examples[i].text) == 0, "base64 of %s: %s", examples[i].bytes, out);
		check(outbox_base64_size(len) == strlen(examples[i].text), "size of %zu bytes", len);
	}
}

int
main(void)
{
	test_characters();
	test_uris();
	test_media_types();
	test_uuids();
	test_base64();
	return done();
}
