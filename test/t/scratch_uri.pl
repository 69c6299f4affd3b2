# scratch
# suite: test
use strict;
use warnings;
use Test::More;
use PostgreSQL::Test::Utils;
use OutboxTest::FakeBroker;
use OutboxTest::Node;
use OutboxTest::Util;
my $SECRET = 'Pa55wordMarker';
my $fake = OutboxTest::FakeBroker->start;
my $node = OutboxTest::Node->create(broker => $fake, conf => "outbox.broker_uri = 'amqp://relay:$SECRET\@127.0.0.1:1/v'");
diag $node->sql("SELECT setting, reset_val FROM pg_settings WHERE name = 'outbox.broker_uri'");
diag $node->sql("CREATE ROLE mon LOGIN; GRANT pg_monitor TO mon;SELECT state, last_error FROM outbox_status");
diag $node->sql("SET ROLE mon; SELECT setting, reset_val FROM pg_settings WHERE name = 'outbox.broker_uri'");
diag $node->sql_fails("SET force_parallel_mode = on; SET parallel_setup_cost=0; SELECT count(*) FROM pg_class") // 'ok';
diag $node->sql_fails("SET ROLE mon; SELECT * FROM pg_file_settings") // 'ok';
diag grep { /$SECRET/ } split /^/, $node->log_text(0);
ok 1;
done_testing();
