# What docs/redis.md says that a user for NGINX needs for requests in flight is enough, and no
# less is.

use v5.36;

use Test::More;

use LimitSliding::Access;
use LimitSliding::Redis;
use LimitSliding::Test qw(:DEFAULT places);

my @more = rights('+psetex');
my @basic = grep { !/^\+/ || /^\+(?:evalsha|eval|select|time|mget|set)$/ } rights('on');

# For each right, a user who lacks it for a while; block and zone have the same name. So all
# outages are waited for at once.
my @commands = map { s/^\+//r } @more, '+mget', '+set', '+time';
my $redis = LimitSliding::Redis->new->start;
$redis->command(qw(ACL SETUSER), $_, @basic, @more) for @commands;

# Returns a block whose data is apart from that of others: they share no grace.
sub apart($user) {
    my $prefix = "        key_prefix limit_sliding:$user:;\n";
    return as_user($redis, $user, $user) =~ s/(?=^ *on_error)/$prefix/mr;
}

# two workers hold units of a key, and give them back
my $nginx = LimitSliding::Test->new;
$nginx->common(http => join('', map { apart($_) } @commands) . <<'HTTP');
    limit_sliding_log_level off;
    add_header X-Source $limit_sliding_source always;
HTTP
$nginx->serve(places(zones => { map { $_ => "inflight=1000 redis=$_" } @commands }));

# Sends requests of a new key to all zones, and waits. Returns those in which Redis decides all.
sub held() {
    state $unique = 0;
    $unique++;
    my %sources;
    my @requests = map { "/$_?key=$unique" } (@commands) x 16;
    $nginx->load(connections => 16, requests => \@requests, each => sub ($i, $, $head) {
        my ($source) = $head =~ /^X-Source: (\w+)/m;
        $sources{ $commands[$i % @commands] }{$source}++;
    });
    sleep 0.25;
    return grep { !$sources{$_}{fallback} && $sources{$_}{redis} } @commands;
}

# Returns the users whom Redis has refused the command that they lack.
sub refused() {
    my @entries = map { { @$_ } } @{ $redis->command(qw(ACL LOG 1000)) };
    return map { $_->{username} }
        grep { $_->{reason} eq 'command' && lc $_->{object} eq $_->{username} } @entries;
}

ok wait_for(sub { held() == @commands }), "enough: @more";

$redis->command(qw(ACL SETUSER), $_, "-$_") for @commands;
$redis->command('FLUSHALL');    # so that workers take new heartbeats
my %refused;
wait_for(sub {
    held();
    %refused = map { $_ => 1 } refused();
    return keys %refused == @commands;
}, 30);
ok $refused{$_}, "+$_ is needed" for @commands;

# Not every Redis names the command of a script, so the module does.
for my $command (map { s/^\+//r } @more) {
    ok wait_for(sub { $nginx->log_lines(qr/\[error\].* redis "$command": .*\b\U$command\E\b/) }, 5),
        "... the log names +$command";
}

$redis->command(qw(ACL SETUSER), $_, "+$_") for @commands;
ok wait_for(sub { held() == @commands }), '... and is enough again';

$nginx->finish;
