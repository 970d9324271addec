# The recipe for gRPC in docs/recipes.md, with a real client of gRPC: a rejected call has the
# status that the client knows, and a retry waits for as long as the pushback says.

use v5.36;

use JSON::PP qw(decode_json);
use Test::More;

use LimitSliding::Clock real => 'gRPC waits in threads of its own';

use LimitSliding::Docs;
use LimitSliding::Test;

my $PYTHON = '/usr/bin/python3';
plan skip_all => 'no python3-grpcio' if system("$PYTHON -c 'import grpc' 2> /dev/null") != 0;

my ($recipe) = map { $_->{text} } grep { $_->{tag} eq 'nginx' && $_->{text} =~ /grpc_pass/ }
    blocks('docs/recipes.md');

# Changed here: where the server is.
my $server = LimitSliding::Test::reserve_port();
$recipe =~ s/127\.0\.0\.1:50051/127.0.0.1:$server->{port}/ or die 'no server';
my $nginx = LimitSliding::Test->new;
$nginx->start(configuration($nginx, $recipe));

my ($port, $proxy) = ($server->{port}, $nginx->port);
my $said = decode_json(scalar `$PYTHON t/data/grpc_client.py $port $proxy`);

is join(' ', map { $_->{status} } $said->{calls}->@*),
    'OK OK OK RESOURCE_EXHAUSTED RESOURCE_EXHAUSTED', 'three calls pass, two are rejected';
my $rejected = $said->{calls}[3];
is $rejected->{details}, 'too many requests', '... with a text';
my $pushback = $rejected->{metadata}{'grpc-retry-pushback-ms'};
is $pushback, 1000 * $rejected->{metadata}{'retry-after'}, '... and the time of Retry-After';
cmp_ok $pushback, '>=', 1000, '... which is one';

is $said->{retried}{status}, 'OK', 'a client that retries succeeds';
cmp_ok $said->{retried}{seconds}, '>', 0.9, '... after the pushback, not after its own backoff';

$nginx->finish;
