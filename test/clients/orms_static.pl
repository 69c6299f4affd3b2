# Mappers of languages with types, and ActiveRecord, with their migration tools: each operation by
# its program, and what it left in the database.  The matrix of test/clients/orms/README.md is made of it.
#
# builds: test/clients/orms/hibernate test/clients/orms/springdata test/clients/orms/gorm test/clients/orms/sqlx test/clients/orms/diesel test/clients/orms/activerecord
# takes: 200 s

use strict;
use warnings;

use Test::More;
use OutboxTest::Clients;
use OutboxTest::Orms;

plan skip_all => OutboxTest::Clients::MISSING unless OutboxTest::Clients::built();

# Title, folder, and where the version is said.
my @ORMS = (
	[ 'Hibernate', 'hibernate', 'pom.xml', qr{hibernate-core</artifactId>\s*<version>([\d.]+\d)} ],
	[ 'Spring Data JPA', 'springdata', 'pom.xml', qr{spring-data-jpa</artifactId>\s*<version>(.*?)<} ],
	[ 'GORM', 'gorm', 'go.mod', qr{gorm.io/gorm v(\S+)} ],
	[ 'sqlx', 'sqlx', 'Cargo.toml', qr{^sqlx = .*"=(.*?)"}m ],
	[ 'Diesel', 'diesel', 'Cargo.toml', qr{^diesel = .*"=(.*?)"}m ],
	[ 'ActiveRecord', 'activerecord', 'main.rb', qr{^# Written for (\S+)}m ],
);

# Programs that end soon: not worth the second compiler.
$ENV{JAVA_TOOL_OPTIONS} = '-XX:TieredStopAtLevel=1 -XX:+UseSerialGC';

my $orms = OutboxTest::Orms->start;

foreach my $orm (grep { !$ENV{ORM} || $ENV{ORM} eq $_->[1] } @ORMS)
{
	my ($title, $folder, @version) = @$orm;
	$orms->try($title, "test/clients/orms/$folder", version => \@version);
}
$orms->page('orms_static') unless $ENV{ORM};
done_testing();
