# What docs/redis.md says a user for NGINX needs is enough, and no less is.

use v5.36;

use Test::More;

use LimitSliding::Redis;
use LimitSliding::Test;

my @ALGORITHMS = qw(counter log fixed token_bucket leaky_bucket);

open my $docs, '<', 'docs/redis.md' or die "docs/redis.md: $!";
my ($rules) = do { local $/; <$docs> } =~ /^ACL SETUSER limiter (.*)$/m;
my @rules = split ' ', $rules;
my @commands = grep { /^\+/ } @rules;
cmp_ok @commands, '>', 5, "the documentation says: @commands";

my $redis = LimitSliding::Redis->new->start;
$redis->command(qw(ACL SETUSER limiter), @rules);

my $zones = join "\n", map { <<"ZONE" } @ALGORITHMS;
    limit_sliding_zone \$arg_key zone=$_:1m rate=2
        window=${\ ($_ eq 'log' ? '1s' : '30d')}
        algorithm=$_ redis=shared;
ZONE
my $locations = join "\n",
    map { "location /$_ { limit_sliding zone=$_; empty_gif; }" } @ALGORITHMS;

my $nginx = LimitSliding::Test->new->start(<<"CONF");
%%GLOBALS%%
http {
    %%HTTP_GLOBALS%%
    limit_sliding_redis shared {
        server ${\ $redis->server};
        user limiter;
        password password;
        database 1;
        connect_timeout 2s;
        timeout 2s;
        on_error deny;
    }
    $zones
    limit_sliding_log_level off;
    add_header X-Source \$limit_sliding_source always;
    server {
        listen 127.0.0.1:%%PORT%%;
        $locations
    }
}
CONF

# Decided by Redis, first with the script's text, then by its digest; written
# anew, then in place; of a log, at last, what is over is removed
sub decided($algorithm, $key) {
    my $pause = $algorithm eq 'log' ? 0.6 : 0;
    my %sources;
    for (0 .. 2) {
        sleep $pause if $_;
        $sources{ header($nginx->get("/$algorithm?key=$key"), 'X-Source') } = 1;
    }
    return join ' ', sort keys %sources;
}

my %DECIDED = (redis => 1, 'cache redis' => 1);
ok $DECIDED{ decided($_, 'enough') }, "$_: enough" for @ALGORITHMS;

# One that is missing shows in some algorithm.
my $n = 0;
for my $command (@commands) {
    $redis->command('SCRIPT', 'FLUSH');
    $redis->kill_clients;
    $redis->command(qw(ACL SETUSER limiter), $command =~ s/\+/-/r);

    # a key of another type is deleted
    $n++;
    $redis->command('SELECT', 1);
    $redis->command('SET', 'limit_sliding:log:{' . sha1("less$n") . '}', 'x');

    my @tried = $command =~ /^\+(z|pexpire|del)/ ? 'log' : 'counter';
    ok grep({ !$DECIDED{ decided($_, "less$n") } } @tried),
        "$command is needed";

    $redis->command(qw(ACL SETUSER limiter), $command);
    wait_for(sub { $DECIDED{ decided('counter', 'again' . ++$n) } });
}

sub sha1($text) {
    require Digest::SHA;
    return Digest::SHA::sha1_hex($text);
}

$nginx->finish;
