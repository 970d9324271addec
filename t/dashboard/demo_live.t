# "make run": the dashboard with a Redis and traffic, until Ctrl-C.

use v5.36;

use FindBin;
use HTTP::Tiny;
use JSON::PP qw(decode_json);
use Test::More;

use LimitSliding::Redis;
use LimitSliding::Test;

plan skip_all => 'built without hiredis' if !LimitSliding::Redis::supported();

my $pid = open my $output, '-|', $^X, "$FindBin::Bin/../demo/live.pl",
    LimitSliding::Test->new->binaries or die "live.pl: $!";
my %said;
while (my $line = <$output>) {
    $said{$1} = $2 if $line =~ /^(.*?): (.*)$/;
    last if $line =~ /Ctrl-C/;
}
my $client = HTTP::Tiny->new(timeout => 5);

my $page = $client->get($said{'The dashboard'});
like $page->{content}, qr/<title>limit_sliding/, 'the dashboard';
my ($api) = $said{'The API'} =~ /^curl (\S+)$/;
my $json;
ok wait_for(sub {
    $json = decode_json($client->get($api)->{content});
    my $zones = $json->{zones};
    return $zones->{api}{passed} && $zones->{login}{passed}
        && $zones->{partners}{sources}{redis};
}), '... with traffic, also in Redis';
ok $json->{write}, '... and changes are allowed';
my ($request) = $said{'A request'} =~ /^curl -i (\S+)$/;
is $client->get($request)->{status}, 200, 'a request';
my ($dir) = $said{'Configuration and log'} =~ m{^(\S+)/nginx\.conf};
ok -f "$dir/nginx.conf", 'the configuration is there';

kill 'INT', $pid;
ok close $output, 'Ctrl-C ends it';
ok wait_for(sub { !-e $dir }), '... and leaves nothing';
is $client->get($api)->{status}, 599, '... NGINX neither';

done_testing;
