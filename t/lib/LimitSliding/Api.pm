package LimitSliding::Api;

# Reads what the limit_sliding_api at /limits of an NGINX tells of limits and of
# single keys.
#
#   my $json = api($nginx);
#   is state_of(api_key($nginx, 'one', 'a')), '0 4 4', 'never came';
#   is state_of(api_key($nginx, 'one', 'a', 'PUT', '&rate=5r/d')), '0 5 5';

use v5.36;

use Exporter qw(import);
use JSON::PP qw(decode_json);

our @EXPORT = qw(@ALGORITHMS all_limits api api_key key_path limits_page
    read_key state_of);

# The algorithms with which a key in Redis may have all kinds of state.
our @ALGORITHMS = qw(counter log fixed token_bucket);

# Returns the JSON of all limits.
sub api($nginx) {
    return decode_json($nginx->get('/limits')->{body});
}

# Returns the path of a key, which is encoded, with parameters, '&name=value'.
sub key_path($zone, $key, $more = '') {
    return "/limits/zones/$zone/key?key=$key$more";
}

# Sends a request of a key. Returns the JSON of the response, and the status of
# the response as `http`.
sub api_key($nginx, $zone, $key, $method = 'GET', $more = '') {
    return read_key($nginx->get(key_path($zone, $key, $more),
        method => $method));
}

# Returns the same of a response that was read.
sub read_key($r) {
    return { %{ decode_json($r->{body}) }, http => $r->{status} };
}

# Returns a page of the keys of a zone with limits of their own, with arguments,
# 'n=10&after=PLACE', as api_key() does.
sub limits_page($nginx, $zone, $arguments = '') {
    return read_key($nginx->get("/limits/zones/$zone/limits?$arguments"));
}

# Returns the limits of all pages, and how many pages these are. A page that
# fails is the last one: its error stands for a limit.
sub all_limits($nginx, $zone, $n = 100) {
    my ($after, $pages, @limits) = ('', 0);
    while (1) {
        my $page = limits_page($nginx, $zone, "n=$n$after");
        $pages++;
        push @limits, @{ $page->{limits} // [ $page->{error} ] };
        $after = '&after=' . ($page->{next} // last);
    }
    return (\@limits, $pages);
}

# Returns "used limit remaining" of a key, or its error.
sub state_of($json) {
    return $json->{error}
        // join ' ', map { $_ // 'null' } @$json{qw(used limit remaining)};
}

1;
