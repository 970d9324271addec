package LimitSliding::Access;

# Users of a Redis who have the rights that docs/redis.md names.
#
#   $redis->command(qw(ACL SETUSER limiter), rights('on'));
#   $nginx->common(http => as_user($redis, 'shared', 'limiter'));

use v5.36;

use Exporter qw(import);

use LimitSliding::Docs qw(content);

our @EXPORT = qw(as_user rights);

# Returns the words after the user's name in the first ACL SETUSER of docs/redis.md that has
# this word among them.
sub rights($word) {
    for my $line (content('docs/redis.md') =~ /^ACL SETUSER limiter (.*)$/mg) {
        my @words = split ' ', $line;
        return @words if grep { $_ eq $word } @words;
    }
    die "docs/redis.md has no ACL SETUSER with $word\n";
}

# Returns a limit_sliding_redis of this name, by which NGINX is this user.
sub as_user($redis, $name, $user) {
    return <<"HTTP";
    limit_sliding_redis $name {
        server ${\ $redis->server};
        user $user;
        password password;
        database 1;
        connect_timeout 2s;
        timeout 2s;
        on_error deny;
    }
HTTP
}

1;
