package OutboxTest::States;

=pod

=head1 NAME

OutboxTest::States - what is wrong, staged; and the commands of outbox_problems, pasted

=head1 SYNOPSIS

  paste_problem($node, 'cdc slot lost');
  my $states = OutboxTest::States->new($node, $rabbit);
  $states->run([ 'a paused database', 'paused', sub { ...; return sub { ... } }, 'fixes' ]);
  note $states->table;

A state is [name, problem, how it is staged, what its command does, more]. It must be
named in outbox_problems in time. The command ends it ("fixes"), or shows what decides it
("shows"), after which the function ends it that the staging has returned. More:

  db                           database, else postgres
  within => 3                  seconds until it is named
  severity, subject, detail    of the row; the last two as a regexp
  since => 'now'               or 'before' it was staged, '' for none, 'any'
  command, out                 the command, and what it prints, as a regexp
  also => sub { ... }          other tests, before its command is pasted
  after => sub { ... }         after that: what the hint says beside the command
  stays => 1                   the row does not end with the state

Each command means ours beside overloads of the functions that it calls. Commands of
RabbitMQ run on that of $rabbit. doc-check looks that the command of each
problem is pasted, here or by paste_problem() with the problem's name.

=cut

use strict;
use warnings;

use base 'Exporter';
use Test::More;
use Time::HiRes qw(time);
use PostgreSQL::Test::Utils;
use OutboxTest::Util;

our @EXPORT = qw(paste paste_problem paste_advice server_tells);

# Of these nobody knows since when; a time before the test is when a certificate began to end,
# a partition was due, or the oldest message came.
my %SINCE = (
	(map { $_ => '' } 'not preloaded', 'launcher missing', 'no process free', 'worker missing', 'standby missing', 'role changed', 'route full',
		'table unlogged', 'trigger off', 'trigger order', 'index missing', 'sequence changed', 'capture broken', 'archive partition missing', 'wraparound'),
	(map { $_ => 'before' } 'certificate expires', 'archive behind', 'backlog old', 'external relay missing'));

my ($bin, %output);

# --- the session and the shell of the operator

sub in_shell
{
	my ($command) = @_;
	local $ENV{PATH} = "$bin:$ENV{PATH}" if $bin;
	my $out = qx{( $command ) 2>&1 </dev/null};

	return ($? >> 8, $out);
}

# Status and output. A session may have any search_path; the same command of a shell's twice shows the same.
sub paste
{
	my ($node, $command, $dbname) = @_;

	$command .= '; SELECT pg_reload_conf()' if $command =~ /^ALTER SYSTEM/;    # as its hint says
	return (0, $node->safe_psql($dbname // 'postgres', "SET search_path = ''; $command"))
	  if $command =~ /^(?:SELECT|SHOW|ALTER|UPDATE|INSERT|CREATE|REINDEX|ROLLBACK|COMMIT|VACUUM)\b/;
	$command =~ s/<LOGFILE>$/$node->logfile/e;
	return in_shell($command) if $command =~ /set_|add_|chmod|grep|enable|alarms/;
	$output{$command} //= [ in_shell($command) ];
	return @{ $output{$command} };
}

# The schema's owner may have made any function and operator there, and put the schema into the
# path: a command must not mean one.  Overloads with defaults can only make a call ambiguous.
sub _unbeaten
{
	my ($node, $command, $dbname) = @_;
	my ($statement) = $command =~ /((?:SELECT|UPDATE|INSERT)\b.*)/ or return;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	eval { $node->sql(<<"SQL", $dbname) };
BEGIN;
SET LOCAL check_function_bodies = off;
DO \$do\$
DECLARE
	place constant regnamespace := (SELECT extnamespace FROM pg_extension WHERE extname = 'outbox');
	types constant text[] := '{integer,bigint,oid,text,name,varchar,uuid,anyelement}';
	f record;
	chosen text;
BEGIN
	FOR f IN
		SELECT DISTINCT c.name, (SELECT string_agg(concat_ws(' ', c.names[i], t), ', ') FROM unnest(l.types) WITH ORDINALITY u(t, i)) AS arguments
		FROM (SELECT p.proname AS name, p.proargnames AS names, n
				FROM pg_proc p, generate_series(0, p.pronargs) n
				WHERE p.pronamespace IN (place, 'pg_catalog'::regnamespace)
					AND p.proname IN (SELECT m[1] FROM regexp_matches(\$c\$$statement\$c\$, '(\\w+)\\(', 'g') m)) c,
			LATERAL (SELECT '{}'::text[] WHERE n = 0
				UNION ALL SELECT ARRAY[t, u] FROM unnest(types) t, unnest(types) u WHERE n = 2
				UNION ALL SELECT array_fill(t, ARRAY[n]) FROM unnest(types) t WHERE n NOT IN (0, 2)) l(types)
		UNION ALL
		SELECT 'theirs', concat_ws(', ', t, u) FROM unnest(types) t, unnest(types) u
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION %s.%I(%s) RETURNS boolean LANGUAGE plpgsql AS \$\$theirs\$\$', place, f.name, f.arguments);
		EXCEPTION WHEN duplicate_function THEN NULL;    -- ours
		END;
	END LOOP;
	FOR f IN SELECT t, u, o FROM unnest(types) t, unnest(types) u, unnest('{=,<>,>,~~}'::text[]) o LOOP
		EXECUTE format('CREATE OPERATOR %1\$s.%2\$s (FUNCTION = %1\$s.theirs, LEFTARG = %3\$s, RIGHTARG = %4\$s)', place, f.o, f.t, f.u);
	END LOOP;
	PERFORM set_config('search_path', place::text, true);
	EXECUTE format('CREATE FUNCTION %s.pasted() RETURNS void BEGIN ATOMIC %s; END', place, \$c\$$statement\$c\$);
	SELECT string_agg(pg_describe_object(d.refclassid, d.refobjid, 0), ', ') INTO chosen
	FROM pg_depend d LEFT JOIN pg_operator o ON d.refclassid = 'pg_operator'::regclass AND o.oid = d.refobjid
		JOIN pg_proc p ON p.oid = coalesce(o.oprcode, d.refobjid) AND p.prosrc = 'theirs'
	WHERE d.classid = 'pg_proc'::regclass AND d.objid = (place || '.pasted()')::regprocedure
		AND d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass);
	IF chosen IS NOT NULL THEN
		RAISE EXCEPTION '% is called', chosen;
	END IF;
END
\$do\$;
ROLLBACK;
SQL
	is($@, '', "no overload beats: $command");
	return;
}

sub _pasted
{
	my ($node, $command, $dbname) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	_unbeaten($node, $command, $dbname);
	my ($status, $out) = eval { paste($node, $command, $dbname) };

	is($@, '', "pasted: $command");
	# Of systemd.
	isnt($status, 127, 'there is such a command') unless $command eq 'timedatectl';
	unlike($command, qr/\b(?:USER|VHOST|HOST|PORT|PASSFILE|KEY_FILE|CERT_FILE|ROUTE|SCHEMA)\b/, 'nothing is left to fill in');
	return ($status, $out // '');
}

# The commands of its rows; returns what the last one has printed.
sub paste_problem
{
	my ($node, $problem, $dbname) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $out;

	$node->wait_sql("SELECT count(*) > 0 FROM outbox_problems WHERE problem = \$p\$$problem\$p\$", 't', $TIMEOUT, $dbname);
	foreach my $row ($node->sql("SELECT DISTINCT command FROM outbox_problems WHERE problem = \$p\$$problem\$p\$", $dbname))
	{
		(undef, $out) = _pasted($node, $_, $dbname) foreach split /\n/, $row;
	}
	return $out;
}

# As outbox_problems would have it of that reason.
sub paste_advice
{
	my ($node, $reason) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($status, $out) = _pasted($node, $node->sql("SELECT command FROM outbox_internal.outbox_reason_hint('$reason', true, NULL, NULL)"));

	ok($status || $out ne '', "$reason: it shows something");
	return;
}

# A function of the server's tells something else, to the call of what is returned.
sub server_tells
{
	my ($node, $function, $arguments, $type, $body) = @_;
	my $begin = 'SET allow_system_table_mods = on';

	$node->sql("$begin; ALTER FUNCTION pg_catalog.$function($arguments) RENAME TO told;
		CREATE FUNCTION pg_catalog.$function($arguments) RETURNS $type LANGUAGE sql AS \$\$SELECT $body\$\$");
	return sub {
		$node->sql("$begin; DROP FUNCTION pg_catalog.$function($arguments); ALTER FUNCTION pg_catalog.told($arguments) RENAME TO $function");
	};
}

# --- states

sub new
{
	my ($class, $node, $rabbit) = @_;
	my $self = bless { node => $node, seen => [] }, $class;

	return $self unless $rabbit;
	$self->{node_name} = $rabbit->node;
	$bin = PostgreSQL::Test::Utils::tempdir();
	$rabbit->ctl('list_vhosts');    # it ends with this test
	foreach my $name (qw(rabbitmqctl rabbitmq-diagnostics rabbitmq-plugins))
	{
		append_to_file("$bin/$name", "#!/bin/sh\nexec rabbitmq-node tool '" . $rabbit->dir . "' $name \"\$@\"\n");
		chmod 0755, "$bin/$name" or die $!;
	}
	return $self;
}

sub _rows_of
{
	my ($self, $problem, $db) = @_;
	return $self->{node}->sql("SELECT count(*) FROM outbox_problems WHERE problem = \$p\$$problem\$p\$", $db);
}

# severity, subject, since, detail, command of its first row
sub _first_row
{
	my ($self, $problem, $began, $db) = @_;
	my @row;
	# Of a peer that resets the connection another reason may be seen in between.
	wait_until('its row', sub {
		@row = split /\x1f/, $self->{node}->sql(
			"SELECT concat_ws(chr(31), severity, subject, CASE WHEN since IS NULL THEN '' WHEN since < '$began' THEN 'before' WHEN since <= clock_timestamp() THEN 'now' ELSE 'later' END,
				coalesce(detail, ''), coalesce(command, ''), hint) FROM outbox_problems WHERE problem = \$p\$$problem\$p\$ ORDER BY severity, subject LIMIT 1", $db);
		return @row > 4;
	});
	return @row;
}

sub _one
{
	my ($self, $name, $problem, $how, $effect, %more) = @_;
	my ($node, $db) = ($self->{node}, $more{db});
	my $began = $node->sql('SELECT clock_timestamp()');
	my $from = time;
	my $end = $how->();

	wait_until($problem, sub { $self->_rows_of($problem, $db) > 0 }, $more{within} // $TIMEOUT);
	my $took = time - $from;
	cmp_ok($took, '<', $more{within} // 3, 'it is named in time');
	my ($severity, $subject, $since, $detail, $command, $hint) = $self->_first_row($problem, $began, $db);
	is($severity, $more{severity}, 'its severity') if $more{severity};
	like($subject, $more{subject}, 'what it is about') if $more{subject};
	is($since, $more{since} // $SINCE{$problem} // 'now', 'since when') unless ($more{since} // '') eq 'any';
	like($detail, $more{detail}, 'its words') if $more{detail};
	isnt($hint // '', '', 'what to do');
	like($command, $more{command} // qr/./, 'its command');
	$more{also}->() if $more{also};
	my ($status, $out) = _pasted($node, $command, $db);
	$more{after}->() if $more{after};
	like($out, $more{out}, 'what it shows') if $more{out};
	if ($effect eq 'fixes')
	{
		# Others may have one row each.
		ok( wait_until("$problem is over", sub {
				return 1 if $self->_rows_of($problem, $db) == 0;
				my ($next) = $node->rows("SELECT command FROM outbox_problems WHERE problem = \$p\$$problem\$p\$ AND command <> \$c\$$command\$c\$ LIMIT 1", $db);
				paste($node, $next->[0], $db) if $next;
				return 0;
			}, 20), 'and the state is over');
	}
	else
	{
		# No row is an answer to a query: no lease, no standby, no file.
		ok($status || $out ne '' || $command =~ /^(?:SELECT|SHOW)/, 'it shows something');
	}
	$end->() if ref $end;
	ok($more{stays} || wait_until('the end', sub { $self->_rows_of($problem, $db) == 0 }, 20), 'over')
	  or diag join "\n", map { join '|', @$_ } $node->rows('SELECT problem, subject, detail FROM outbox_problems', $db);
	my ($shown) = grep { /\S/ } split /\n/, $out =~ s/\|/\\|/gr;
	push @{ $self->{seen} }, [ $name, $problem, $severity, $detail, $command, $effect,
		$effect eq 'fixes' ? 'the state is over' : $shown // ($status ? "exit status $status" : 'no row') ];
	return;
}

sub run
{
	my ($self, @states) = @_;

	foreach my $state (@states)
	{
		my ($name, $problem) = @$state;
		next if $ENV{OUTBOX_TEST_CASE} && "$name: $problem" !~ /$ENV{OUTBOX_TEST_CASE}/;
		subtest "$name: $problem" => sub { $self->_one(@$state) };
		$self->{between}->($problem) if $self->{between};
	}
	return;
}

sub between
{
	my ($self, $code) = @_;
	$self->{between} = $code;
	return;
}

# What changes with each run is not of the table.
sub table
{
	my ($self, $dir) = @_;
	my @lines;

	foreach my $line (@{ $self->{seen} })
	{
		my ($name, $problem, $severity, $detail, $command, $does, $out) = map {
			s/\Q$dir\E\/?//gr =~ s/[^\s"]*\/tmp_check\/[^\s"]*\///gr =~ s/\b(?:127\.0\.0\.1|localhost|0\.0\.0\.0):\d{4,5}\b/HOST:PORT/gr =~ s/(process |backend\(|pid = )\d+/${1}N/gr =~ s/"Odd Schema"/SCHEMA/gr
			  =~ s/[0-9a-f]{8}-[0-9a-f-]{27}/ID/gr =~ s/\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(?:\.\d+)?(?:\+00| UTC| GMT)/TIME/gr =~ s/(?<!\\)\|/\\|/gr =~ s/\n/ /gr =~ s/\boutbox\d+\@localhost\b/NODE/gr
		} @$line;
		push @lines, "| $name | `$problem` | $severity | $detail | `$command` | $does: " . substr($out, 0, 80) . " |\n";
	}
	return join '', @lines;
}

1;
