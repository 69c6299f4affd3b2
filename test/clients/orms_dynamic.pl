# Mappers and migration tools of Python and Node.js write messages beside business rows: what
# is in the database, and what is published.  The first table of test/clients/orms/README.md is made of it.
#
# builds: test/clients/orms/django test/clients/orms/sqlalchemy test/clients/orms/psycopg test/clients/orms/knex test/clients/orms/typeorm
# takes: 150 s

use strict;
use warnings;

use Test::More;
use OutboxTest::Clients;
use OutboxTest::Orms;

plan skip_all => OutboxTest::Clients::MISSING unless OutboxTest::Clients::built();

my @ORMS = (
	[ 'Django', 'django', 'requirements.txt', qr/^Django==(\S+)/m ],
	[ 'SQLAlchemy', 'sqlalchemy', 'requirements.txt', qr/^SQLAlchemy==(\S+)/m ],
	[ 'psycopg', 'psycopg', 'requirements.txt', qr/^psycopg\[binary\]==(\S+)/m ],
	[ 'Knex', 'knex', 'package.json', qr/"knex": "(.*?)"/ ],
	[ 'TypeORM', 'typeorm', 'package.json', qr/"typeorm": "(.*?)"/ ],
);

my $orms = OutboxTest::Orms->start;

foreach my $orm (grep { !$ENV{ORM} || $ENV{ORM} eq $_->[1] } @ORMS)
{
	my ($title, $folder, @version) = @$orm;
	$orms->try($title, "test/clients/orms/$folder", version => \@version);
}
$orms->page('orms_dynamic') unless $ENV{ORM};
done_testing();
