# leaky_bucket beside limit_req: on a day of real traffic (data/README.md) the same
# decision for each request and the same excess in the log, and the same delays.

use v5.36;

use FindBin;
use IO::Uncompress::Gunzip qw($GunzipError);
use Test::More;

use LimitSliding::Test;

my $trace = IO::Uncompress::Gunzip->new("$FindBin::Bin/../data/nasa-http-1995-08-01.tsv.gz")
    or die "trace: $GunzipError";
my @clients = map { (split /\t/)[1] } <$trace>;
is @clients, 30_969, 'requests in the trace';

# The rate, and what limit_req and a leaky_bucket are both given. limit_req cuts off
# what is less than a thousandth of a request, which these have none of.
my @SETTINGS = (
    [ '30r/s', 'burst=5' ],
    [ '7r/s', 'burst=20 nodelay' ],
    [ '13r/s', 'burst=12 delay=4' ],
    [ '3r/s', '' ],
    [ '700r/s', 'burst=2' ],
);

# One worker: two would decide on some requests in one order with limit_req and in
# the other one with limit_sliding. In dry run each sees all requests, whatever
# the other one does.
my $nginx = LimitSliding::Test->new(worker_processes => 1);
my ($zones, $places) = ('', '');

for my $i (0 .. $#SETTINGS) {
    my ($rate, $queue) = $SETTINGS[$i]->@*;
    $zones .= <<"HTTP";
    limit_req_zone \$arg_client zone=req$i:4m rate=$rate;
    limit_sliding_zone \$arg_client zone=sliding$i:4m rate=$rate
        algorithm=leaky_bucket $queue;
HTTP
    $places .= <<"SERVER";
    location /$i {
        limit_req zone=req$i $queue;
        limit_sliding zone=sliding$i;
        error_log %%DIR%%/$i.log warn;
        empty_gif;
    }
SERVER
}

$nginx->serve(http => <<"HTTP", server => $places);
    limit_req_dry_run on;
    limit_sliding_dry_run on;
    add_header X-Both "\$limit_req_status \$limit_sliding_status" always;
$zones
HTTP

# Returns the excess in each line of a log that names a zone.
sub excesses($i, $zone) {
    open my $log, '<', $nginx->dir . "/$i.log" or die "log: $!";
    return map { /(\w+) requests?, dry run, excess: ([\d.]+),? by zone "\Q$zone\E"/
            ? "$1 $2" : () } <$log>;
}

for my $i (0 .. $#SETTINGS) {
    my $name = join ' ', $SETTINGS[$i]->@*;
    my (%said, @different);

    my $statuses = $nginx->load(pipeline => 4, connections => 16,
        requests => [ map { "/$i?client=$_" } @clients ],
        each => sub ($n, $status, $head) {
            my ($req, $sliding) = $head =~ /^X-Both: (\w+) (\w+)\r?$/m
                or return push @different, "$n: $head";
            $said{$req}++;
            push @different, "$n: limit_req $req, limit_sliding $sliding"
                if $req ne $sliding;
        });

    is grep({ ($_ // '') ne '200' } @$statuses), 0, "$name: all are answered";
    is "@different[0 .. ($#different > 9 ? 9 : $#different)]", '',
        "$name: the same decisions";

    my @may = ($name =~ /nodelay|s $/ ? () : 'DELAYED_DRY_RUN',
        'PASSED', 'REJECTED_DRY_RUN');
    is_deeply [ sort keys %said ], [ sort @may ], '... of all kinds';
    cmp_ok $said{$_} // 0, '>', 50, "... $_" for @may;
    note join ', ', map { "$_ $said{$_}" } sort keys %said;

    my @logged = excesses($i, "req$i");
    cmp_ok scalar @logged, '>', 100, '... logged';
    is_deeply [ excesses($i, "sliding$i") ], \@logged, '... with the same excess';
}



# how long requests wait that come at once

my %QUEUES = (
    queue    => [ 'burst=4',         [ 0, 200, 400, 600, 800 ] ],
    two      => [ 'burst=4 delay=2', [ 0, 0, 0, 200, 400 ] ],
    all      => [ 'burst=4 nodelay', [ 0, 0, 0, 0, 0 ] ],
    too_many => [ 'burst=4 delay=9', [ 0, 0, 0, 0, 0 ] ],
);

$nginx->serve(
    http => join('', "limit_req_status 429; add_header X-Took \$request_time always;",
        map { "limit_req_zone \$arg_key zone=req_$_:1m rate=5r/s;"
            . "limit_sliding_zone \$arg_key zone=$_:1m rate=5r/s"
            . " algorithm=leaky_bucket $QUEUES{$_}[0];" } keys %QUEUES),
    server => join '', map { "location /req/$_ { limit_req zone=req_$_"
        . " $QUEUES{$_}[0]; empty_gif; } location /sliding/$_ { limit_sliding"
        . " zone=$_; empty_gif; }" } keys %QUEUES);

for my $module (qw(req sliding)) {
    my (%took, %rejected);
    my @paths = map { ("/$module/$_") x 6 } sort keys %QUEUES;

    $nginx->load(requests => [ map { "$_?key=a" } @paths ],
        connections => scalar @paths,
        each => sub ($n, $status, $head) {
            return $rejected{ $paths[$n] }++ if $status ne '200';
            push $took{ $paths[$n] }->@*, $head =~ /^X-Took: ([\d.]+)/m;
        });

    for my $queue (sort keys %QUEUES) {
        my ($parameters, $waits) = $QUEUES{$queue}->@*;
        my @took = sort { $a <=> $b } @{ $took{"/$module/$queue"} // [] };
        my $name = "limit_$module, $parameters";

        is @took, 5, "$name: five pass";
        is $rejected{"/$module/$queue"}, 1, '... and the sixth is rejected';
        is join(' ', map { 1000 * $_ } @took), "@$waits", '... each waits its time';
        is 1000 * header($nginx->get("/$module/$queue?key=a"), 'X-Took'),
            $queue eq 'queue' ? 200 : 0, '... and one that comes 800 ms later';
    }
}

$nginx->finish;
