package OutboxTest::Ca;

=pod

=head1 NAME

OutboxTest::Ca - a certificate authority for one test file

=head1 SYNOPSIS

  my $ca = OutboxTest::Ca->create;
  my $server = $ca->issue(alt => 'DNS:localhost,IP:127.0.0.1');
  my $client = $ca->issue(name => 'app', for => 'client', passphrase => 'secret');
  $server->{cert}, $server->{key}, $ca->file

Made with the openssl tool, in a directory that ends with the test. Keys have 0600.

=cut

use strict;
use warnings;

use IPC::Run ();
use PostgreSQL::Test::Utils;

# No certificate of a test begins or ends in its lifetime.
my %CURRENT = (from => '20200101000000Z', until => '20991231000000Z');

sub _openssl
{
	my (@args) = @_;
	my $out = '';
	IPC::Run::run([ 'openssl', @args ], '<', \undef, '>', \$out, '2>&1')
	  or die "openssl @args: $out\n";
	return;
}

sub _new_key
{
	my ($file, $passphrase) = @_;
	_openssl(
		'genpkey', '-algorithm', 'EC', '-pkeyopt', 'ec_paramgen_curve:P-256',
		(defined $passphrase ? ('-aes-256-cbc', '-pass', "pass:$passphrase") : ()),
		'-out', $file);
	chmod 0600, $file or die "$file: $!\n";
	return $file;
}

=pod

=over

=item OutboxTest::Ca->create($name)

A root authority of that name.

=cut

sub create
{
	my ($class, $name) = @_;
	my $self = bless { dir => PostgreSQL::Test::Utils::tempdir(), n => 0 }, $class;
	my $dir = $self->{dir};

	append_to_file("$dir/index.txt", '');
	append_to_file("$dir/ca.cnf", <<"END");
[ca]
default_ca = ca_default
[ca_default]
database = $dir/index.txt
new_certs_dir = $dir
rand_serial = yes
unique_subject = no
default_md = sha256
policy = any
[any]
commonName = supplied
[req]
distinguished_name = name
[name]
END
	$self->{key} = _new_key("$dir/ca.key");
	$self->{file} = "$dir/ca.crt";
	$self->_sign(
		$self->{file}, $self->{key}, name => $name // 'Test CA', self_signed => 1,
		extensions => "basicConstraints = critical, CA:true\nkeyUsage = critical, keyCertSign\n");
	return $self;
}

sub _sign
{
	my ($self, $file, $key, %params) = @_;
	my $dir = $self->{dir};
	my $n = ++$self->{n};
	my @pass = defined $params{passphrase} ? ('-passin', "pass:$params{passphrase}") : ();

	append_to_file("$dir/$n.ext", $params{extensions});
	_openssl('req', '-new', '-config', "$dir/ca.cnf", '-key', $key, @pass,
		'-subj', "/CN=$params{name}", '-out', "$dir/$n.csr");
	_openssl(
		'ca', '-batch', '-config', "$dir/ca.cnf", '-notext',
		($params{self_signed} ? ('-selfsign') : ('-cert', $self->{file})),
		'-keyfile', $params{self_signed} ? $key : $self->{key}, @pass,
		'-startdate', $params{from} // $CURRENT{from},
		'-enddate', $params{until} // $CURRENT{until},
		'-extfile', "$dir/$n.ext", '-in', "$dir/$n.csr", '-out', $file);
	return;
}

=pod

=item $ca->issue(%params)

A certificate and its key, as a hash reference of file names: cert, key. Parameters,
all optional: name, the subject's common name; alt, as openssl writes subjectAltName;
for => 'client', 'server' by default; from and until, as 20200101000000Z; passphrase
of the key; self_signed => 1.

=item $ca->file

The authority's certificate.

=item $ca->dir

A place for other files.

=back

=cut

sub issue
{
	my ($self, %params) = @_;
	my $base = "$self->{dir}/issued" . ($self->{n} + 1);
	my $purpose = ($params{for} // 'server') . 'Auth';
	my $extensions = "basicConstraints = CA:false\nextendedKeyUsage = $purpose\n";

	$extensions .= "subjectAltName = $params{alt}\n" if defined $params{alt};
	_new_key("$base.key", $params{passphrase});
	$self->_sign("$base.crt", "$base.key", name => 'localhost', %params, extensions => $extensions);
	return { cert => "$base.crt", key => "$base.key" };
}

sub file { return $_[0]{file} }
sub dir { return $_[0]{dir} }

1;
