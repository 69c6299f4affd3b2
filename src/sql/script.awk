# script.awk: the installation script, of its parts
#
#	awk -f src/sql/script.awk src/message/columns.def PART...
#
# A line "@add LIST@text" of a part puts the text where another one has "@list LIST@", so
# that nobody else names what belongs to a part that can be left out.
#
# "@columns ...@" is expanded: columns.def says what the columns of a message are.  On
# lines of their own:
#
#	@columns table@, @columns archive@	definitions of the table outbox and its archive
#	@columns storage@			SET STORAGE for what the archive gets compressed
#
# Lists of names, in the order of the table, with the alias before each if one is given:
#
#	@columns archived [alias.]@		what the archive keeps
#	@columns body [alias.]@			of that, what it keeps only with archive = 'message'
#	@columns read [alias.]@			what the relay reads
#	@columns content [alias.]@		what is published
#	@columns new [alias.]@			what an application can set
#
# "-name" leaves a column out, "name=expression" puts something in its place, "types"
# adds the types.

BEGIN {
	sql["int8"] = "bigint"
	sql["int4"] = "integer"
	sql["bool"] = "boolean"
	for (i = 2; i < ARGC; i++)
		while ((getline line < ARGV[i]) > 0)
			if (match(line, /^@add [a-z ]+@/)) {
				list = substr(line, 6, RLENGTH - 6)
				added[list] = added[list] substr(line, RLENGTH + 1) "\n"
			}
}

function fail(text)
{
	print FILENAME ":" FNR ": " text > "/dev/stderr"
	failed = 1
	exit 1
}

# FIRST(SEQ, seq, ...) and COLUMN(...): the default, in quotes, is the sixth argument.
FNR == NR {
	if ($0 !~ /^\t(FIRST|COLUMN)\([A-Z]/)
		next
	if (!match($0, /, ".*", /))
		fail("a column without a default in quotes")
	split(substr($0, 1, RSTART - 1), before, /[(,] */)
	split(substr($0, RSTART + RLENGTH), after, /[,)] */)
	n++
	name[n] = before[3]
	type[n] = (before[5] in sql) ? sql[before[5]] : before[5]
	null[n] = before[6]
	value[n] = substr($0, RSTART + 3, RLENGTH - 6)
	set_by[n] = after[1]
	archive[n] = after[2]
	relay[n] = after[3]
	if (after[3] !~ /^(LISTED|READ|UNREAD)$/ || archive[n] !~ /^(KEPT|BODY|DROPPED)$/ ||
		set_by[n] !~ /^(CONTENT|APPLICATION|INSERT|SERVER|RELAY)$/ ||
		null[n] !~ /^(NULLABLE|NOT_NULL|IDENTITY|DEFAULT)$/)
		fail("not what columns.def says of a column")
	next
}

function definition(i)
{
	return name[i] " " type[i] \
		(null[i] == "IDENTITY" ? " GENERATED ALWAYS AS IDENTITY" : "") \
		(null[i] == "NOT_NULL" || null[i] == "DEFAULT" ? " NOT NULL" : "") \
		(null[i] == "DEFAULT" ? " DEFAULT " value[i] : "")
}

# What stands for column i in the list, or nothing.
function item(list, i)
{
	if (list == "table")
		return definition(i)
	if (list == "archive" && archive[i] != "DROPPED")
		return name[i] " " type[i] (null[i] == "NULLABLE" ? "" : " NOT NULL")
	if (list == "storage" && archive[i] != "DROPPED" && (type[i] == "jsonb" || type[i] == "bytea"))
		return "ALTER " name[i] " SET STORAGE EXTERNAL"
	if (list == "archived" && archive[i] != "DROPPED" ||
		list == "body" && archive[i] == "BODY" ||
		list == "read" && relay[i] != "UNREAD" ||
		list == "content" && set_by[i] == "CONTENT" ||
		list == "new" && set_by[i] ~ /^(CONTENT|APPLICATION|INSERT)$/)
		return name[i]
	return ""
}

function expand(marker,    words, count, list, alias, types, other, i, w, text, one)
{
	count = split(marker, words, / +/)
	list = words[2]
	if (list !~ /^(table|archive|storage|archived|body|read|content|new)$/)
		fail("no list of columns is called \"" list "\"")
	for (w = 3; w <= count; w++) {
		if (words[w] ~ /^[a-z]+\.$/)
			alias = words[w]
		else if (words[w] == "types")
			types = 1
		else if (words[w] ~ /^-/)
			other[substr(words[w], 2)] = ""
		else if (words[w] ~ /=/)
			other[substr(words[w], 1, index(words[w], "=") - 1)] = substr(words[w], index(words[w], "=") + 1)
		else
			fail("not understood: " words[w])
	}
	for (i = 1; i <= n; i++) {
		one = item(list, i)
		if (one == "")
			continue
		if (name[i] in other) {
			one = other[name[i]]
			delete other[name[i]]
			if (one == "")
				continue
		} else if (types)
			one = one " " type[i]
		else
			one = alias one
		text = text (text == "" ? "" : list ~ /^(table|archive|storage)$/ ? ",\n\t" : ", ") one
	}
	for (w in other)
		fail("the list \"" list "\" has no column " w)
	return text
}

/^@add [a-z ]+@/ {
	next
}

/^@list [a-z ]+@$/ {
	list = substr($0, 7, length($0) - 7)
	printf "%s", added[list]
	delete added[list]
	next
}

{
	while (match($0, /@columns [^@]*@/))
		$0 = substr($0, 1, RSTART - 1) expand(substr($0, RSTART + 1, RLENGTH - 2)) \
			substr($0, RSTART + RLENGTH)
	print
}

END {
	if (failed)
		exit 1
	for (list in added)
		if (ARGC > 3)	# not one part alone
			fail("no part has the list \"" list "\"")
}
