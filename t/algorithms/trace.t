# A day of real traffic (data/README.md), as fast as it goes: each client gets
# its limit, no more and no less.

use v5.36;

use FindBin;
use IO::Uncompress::Gunzip qw($GunzipError);
use List::Util qw(min);
use Test::More;

use LimitSliding::Test;

my $nginx = LimitSliding::Test->new->start(<<'CONF');
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_zone $arg_client zone=tight:1m rate=10 window=1d;
    limit_sliding_zone $arg_client zone=wide:1m rate=50r/d;
    limit_sliding_log_level off;
    add_header X-Worker $pid always;
    server {
        listen 127.0.0.1:%%PORT%% reuseport;
        location /10 { limit_sliding zone=tight; empty_gif; }
        location /50 { limit_sliding zone=wide;  empty_gif; }
    }
}
CONF

my $trace = IO::Uncompress::Gunzip->new("$FindBin::Bin/../data/nasa-http-1995-08-01.tsv.gz")
    or die "trace: $GunzipError";
my @clients = map { (split /\t/)[1] } <$trace>;

my %requests;
$requests{$_}++ for @clients;
is @clients, 30_969, 'requests in the trace';
is keys %requests, 2_365, 'clients in the trace';

for my $limit (10, 50) {
    my (%passed, %rejected, %workers);

    my $statuses = $nginx->load(pipeline => 8,
        requests => [ map { "/$limit?client=$_" } @clients ],
        each => sub ($i, $status, $head) {
            $workers{$1}++ if $head =~ /^X-Worker: (\d+)/m;
        });

    for my $i (0 .. $#clients) {
        my $status = $statuses->[$i] // 'none';
        $passed{ $clients[$i] }++   if $status eq '200';
        $rejected{ $clients[$i] }++ if $status eq '429';
    }

    my @wrong;
    for my $client (sort { $a <=> $b } keys %requests) {
        my $expected = min($requests{$client}, $limit);
        my $got = $passed{$client} // 0;
        my $not = $rejected{$client} // 0;
        push @wrong, "client $client: $got of $requests{$client} passed, "
            . "$not rejected"
            if $got != $expected || $got + $not != $requests{$client};
    }

    is join("\n", @wrong), '', "limit $limit a day: exact for every client";
    is keys %workers, 2, "limit $limit a day: both workers took part";
    cmp_ok grep($requests{$_} > $limit, keys %requests), '>', 10,
        "limit $limit a day: it does limit";
}

$nginx->finish;
