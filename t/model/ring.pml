/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * The protocol of a key's ring of events, that of src/core/rings/events.hpp and
 * ring_rule.hpp, as a spin model in the manner of table.pml: every load and every
 * compare-and-swap of shared memory is one transition.  Nobody else claims the
 * key's own slot: table.pml is about claims.  The slots of its pages may be
 * claimed by another key, and by other pages.
 *
 * Processes make requests of one unit to an exact log.  Each is made at any
 * time, as if their clocks had nothing to do with each other.
 *
 * Parameters, all by -D.  The setting:
 *
 *   LENGTH    events in the ring, 2 or 3
 *   OPS1 ..   requests that each of up to three processes makes
 *   TICKS     times there are
 *   SPAN      ticks of a window
 *   LIMIT     units in a window
 *   REFUND    who was admitted may take it back
 *   OTHER     so many times another key claims the slot of a page, writes its
 *             own events there, and sees that they stay
 *   PAGES     slots of pages; fewer than there are pages evict each other
 *   DIRTY     the slot was just claimed, and in its ring is what another left
 *   CRASHES   processes that may stop for good between any two steps
 *   SOLO      at any point all processes but one may stop for good; the one
 *             left has to finish each request within SOLO restarts
 *
 * and the MUTANT_s, each of which leaves something out.
 */

#ifndef LENGTH
#define LENGTH  2
#endif
#ifndef OPS1
#define OPS1  2
#endif
#ifndef OPS2
#define OPS2  2
#endif
#ifndef OPS3
#define OPS3  0
#endif
#ifndef TICKS
#define TICKS  3
#endif
#ifndef SPAN
#define SPAN  2
#endif
#ifndef LIMIT
#define LIMIT  2
#endif
#ifndef CRASHES
#define CRASHES  0
#endif
#ifndef OTHER
#define OTHER  0
#endif

/* no more events than requests; totals and ticks fit below */
#define EVENTS  (OPS1 + OPS2 + OPS3)

/* valid 1 | lap 1 | closed 1 | total 3 | tick 3 */
#define LAP(p)                 (((p) / LENGTH) % 2)
#define EVENT(p, total, tick)  ((2 + LAP(p)) * 128 + (total) * 8 + (tick))
#define CLOSED                 64
#define IS_CLOSED(e)           (((e) & CLOSED) != 0)
#define TOTAL(e)               (((e) >> 3) & 7)
#define TICK(e)                ((e) & 7)
#define UNITS(from, to)        (((to) - (from)) & 7)
#define NONE                   0

#ifdef MUTANT_NO_LAP
#define IS_EVENT(e, p)  (((e) >> 8) == 1)
#else
#define IS_EVENT(e, p)  (((e) >> 7) == 2 + LAP(p))
#endif

#define IS_OVER(then)   ((then) + SPAN <= clock)

/* the slot: how many events, or that it is tentative, and the newest ones */
#define TENTATIVE  255

byte state;
short ring[LENGTH];

/*
 * The slots of pages: whose each is, and its generation, which is in each of
 * its words as well.  Page n has the events n x (LENGTH - 1) and up, and in its
 * first place the one before them.
 */
#define PAGE_EVENTS  (LENGTH - 1)

#ifdef PAGES
#define FORGETS
#else
#define PAGES  (EVENTS / PAGE_EVENTS + 1)
#endif

#define NOBODY       0
#define SOMEBODY     255           /* another key */
#define OWNER(page)  ((page) + 1)
#define SLOT(page)   ((page) % PAGES)

#define WORD(generation, event)  ((generation) * 512 + (event))
#define OTHERS                   511

byte owner[PAGES];
byte generation[PAGES];
bool is_tentative[PAGES];
short words[PAGES * LENGTH];

#ifdef REFUND
/* what was given back of closed events, by the time of these */
byte credit[TICKS];
#endif

/* From here on nothing that the implementation has: the bookkeeping. */

byte admitted[TICKS];            /* units, less those taken back */
hidden byte n, all, in_window, credited;

#if CRASHES > 0
byte crashed;
#endif

#ifdef SOLO
byte solo;                       /* the process that goes on alone */
byte gone;                       /* processes done or stopped */

#define NP    (2 + (OPS3 > 0))
#define RUNS  (solo == 0 || (solo == _pid && gone == NP - 1))
#else
#define RUNS  true
#endif

inline sum_up() {
    all = 0;
    in_window = 0;
    n = 0;
    do
    :: n < TICKS ->
        all = all + admitted[n];
#ifdef REFUND
        all = all + credit[n];
#endif
        if
        :: n <= clock && !IS_OVER(n) -> in_window = in_window + admitted[n]
        :: else
        fi;
        n++
    :: else -> break
    od
}

/* The newest event tells of all that was admitted. */
inline check_recorded(total) {
    sum_up();
    assert(all == (total));
#ifndef FORGETS
    assert(in_window <= LIMIT)
#endif
}

/*
 * What others are admitted meanwhile only adds to what there was; what was
 * forgotten does not count, nor does anything that is over.
 */
inline check_rejected() {
#ifndef REFUND
    sum_up();
    assert(in_window >= LIMIT)
#else
    skip
#endif
}


/* ---- one process ---- */

/* what it does next, one access to shared memory each */
#define BEGIN         0
#define OPEN          1
#define WIPE          2
#define WIPE_CHECK    3
#define WIPE_SWAP     4
#define CONFIRM       5
#define HELP          6
#define HELP_COUNT    7
#define NEWEST        8
#define SCAN          9
#define SCAN_OLD      10
#define CHECK_USED    11
#define MERGE         12
#define CLOSE         13
#define LOAD          14
#define CHECK_LOADED  15
#define MOVE          16
#define CHECK_MOVED   17
#define OBTAIN        18
#define FILL          19
#define FILL_CHECK    20
#define FILL_SWAP     21
#define CONFIRM_PAGE  22
#define PUT           23
#define COUNT         24
#define CREDITS       25
#define TAKE_BACK     26
#define IDLE          27

/* what a process will not use again must not tell states apart */
inline forget() {
    count = 0; newest = 0; replaced = 0; event = 0; word = 0;
    position = 0; before = 0; mine = 0
}

inline restart() {
#ifdef SOLO
    if
    :: solo -> restarts++; assert(restarts <= SOLO)
    :: else
    fi;
#endif
    forget();
    clock = tick;
    step = OPEN
}

inline idle() {
    forget();
    ops = 0; tick = 0; clock = 0; regrets = false;
#ifdef SOLO
    restarts = 0;
    gone++;
#endif
    step = IDLE
}

inline done() {
    ops--;
    if
    :: ops == 0 -> idle()
    :: else ->
        forget();
        tick = 0; clock = 0; regrets = false;
#ifdef SOLO
        restarts = 0;
#endif
        step = BEGIN
    fi
}

inline begin(time) {
    tick = time;
    clock = time;
    step = OPEN
}

/* who takes it back opens the key anew, as of the event's tick */
inline recorded() {
    if
    :: regrets ->
        forget();
        tick = clock;
        step = OPEN
    :: else -> done()
    fi
}

/* Nobody has counted an event since: what was read is all of one lap. */
#define IS_SAME  (state == count)

#ifdef MUTANT_UNCHECKED_USED
#define IS_USED_SAME  true
#else
#define IS_USED_SAME  IS_SAME
#endif

#ifdef MUTANT_UNCHECKED_LOAD
#define IS_LOADED_SAME  true
#else
#define IS_LOADED_SAME  IS_SAME
#endif

inline wipe_next() {
    event = 0;
    position++;
    if
    :: position < LENGTH -> step = WIPE
    :: else -> position = 0; step = CONFIRM
    fi
}

/* `position` is of the first event known to count; what is before it? */
#ifdef REFUND
#define USED_KNOWN  CREDITS
#else
#define USED_KNOWN  CHECK_USED
#endif

inline scan_begin() {
    if
    :: regrets -> step = TAKE_BACK
    :: !regrets && count == 0 -> step = CHECK_USED
    :: !regrets && count > 0 && IS_OVER(TICK(newest)) ->
        before = TOTAL(newest);
        step = CHECK_USED
    :: else ->
        position = count - 1;
        scan()
    fi
}

inline scan() {
    if
    :: position == 0 -> before = 0; step = USED_KNOWN
    :: position > 0 && position + LENGTH > count -> step = SCAN
    :: else -> step = SCAN_OLD
    fi
}

/* the ring's oldest one only tells what was before the next */
inline scan_decide() {
    before = TOTAL(event);
    if
    :: position - 1 + LENGTH == count -> step = SCAN_OLD
    :: else ->
        if
        :: IS_OVER(TICK(event)) -> step = USED_KNOWN
        :: else ->
            position--;
            scan()
        fi
    fi;
    event = 0
}

/* The event in this place of a page, or none if it is missing. */
#define IN_PAGE(page, place)                                                  \
    (owner[SLOT(page)] == OWNER(page) && !is_tentative[SLOT(page)]            \
     && words[SLOT(page) * LENGTH + (place)] / 512                            \
        == generation[SLOT(page)]                                             \
     -> words[SLOT(page) * LENGTH + (place)] % 512 : NONE)

inline scan_old_decide() {
    if
    :: event == NONE || IS_OVER(TICK(event)) ->
        step = USED_KNOWN;
        if
        :: position + LENGTH > count
        :: else -> tell_before_old()
        fi
    :: else ->
        position--;
        if
        :: position == 0 -> before = 0; step = USED_KNOWN
        :: else -> step = SCAN_OLD
        fi
    fi;
    event = 0
}

/* it is in the page of the first that counts, unless that has gone since */
inline tell_before_old() {
    event = IN_PAGE(position / PAGE_EVENTS, position % PAGE_EVENTS);
    if
#ifdef MUTANT_MISSING_IS_NOTHING
    :: event == NONE -> before = 0
#else
    :: event == NONE -> restart()
#endif
    :: else -> before = TOTAL(event)
    fi
}

inline read_credits() {
    credited = 0;
    n = 0;
    do
    :: n < TICKS ->
        if
#ifdef MUTANT_LASTING_CREDITS
        :: n <= clock -> credited = credited + credit[n]
#else
        :: n <= clock && !IS_OVER(n) -> credited = credited + credit[n]
#endif
        :: else
        fi;
        n++
    :: else -> break
    od;
    /* as if so much more was used before */
    before = (before + credited) & 7;
    step = CHECK_USED
}

inline decide() {
    position = 0;
    if
    :: UNITS(before, TOTAL(newest)) >= LIMIT ->
        check_rejected();
        done()
    :: else ->
        before = 0;
        if
        :: count == 0 || IS_CLOSED(newest) -> step = LOAD
        :: else -> step = (TICK(newest) == clock -> MERGE : CLOSE)
        fi
    fi
}

inline merge(regret) {
    if
    :: ring[(count - 1) % LENGTH] == newest ->
        ring[(count - 1) % LENGTH] = newest + 8;
        admitted[clock]++;
        check_recorded(TOTAL(newest) + 1);
        regrets = regret;
        recorded()
    :: else -> restart()
    fi
}

inline put(regret) {
    if
    :: ring[count % LENGTH] == replaced ->
        ring[count % LENGTH] = EVENT(count, TOTAL(newest) + 1, clock);
        admitted[clock]++;
        check_recorded(TOTAL(newest) + 1);
        regrets = regret;
        replaced = 0; newest = 0;
        step = COUNT
    :: else -> restart()
    fi
}

/* the first event that is about to lose the total before it */
#define MOVED  (count + 1 - LENGTH)

inline load_decide() {
    if
    :: count + 1 < LENGTH -> step = PUT
    :: count + 1 >= LENGTH && MOVED > 0 && !IS_EVENT(replaced, MOVED - 1) ->
        restart()
#ifdef MUTANT_NO_MOVE
    :: else -> step = PUT
#else
    :: else -> step = MOVE
#endif
    fi
}

/* is there a page of it already, as the event before it counts still? */
inline move_decide() {
    if
    :: IS_OVER(TICK(event)) -> event = 0; step = PUT
#ifdef MUTANT_ONE_PAGE
    :: (!IS_OVER(TICK(event)) && MOVED > 0) -> event = 0; step = PUT
#else
    :: (!IS_OVER(TICK(event)) && MOVED % PAGE_EVENTS != 0
        && !IS_OVER(TICK(replaced))) -> event = 0; step = PUT
#endif
    :: else -> step = OBTAIN
    fi
}

/* a page's slot, and what is to be in each of its places */
#define PAGE        (MOVED / PAGE_EVENTS)
#define PAGE_SLOT   SLOT(PAGE)
#define PAGE_PLACE  (MOVED % PAGE_EVENTS + 1)
#define PLACED                                                                \
    (position > PAGE_PLACE -> newest                                          \
     : (position == PAGE_PLACE -> event                                       \
        : (MOVED == 0 -> EVENT(0, 0, TICK(event)) : replaced)))
#define PAGE_WORD  WORD(mine, EVENT(0, TOTAL(PLACED), TICK(PLACED)))

inline obtain() {
    if
    :: owner[PAGE_SLOT] == OWNER(PAGE) && !is_tentative[PAGE_SLOT] ->
        event = 0;
        step = PUT
    :: owner[PAGE_SLOT] == OWNER(PAGE) && is_tentative[PAGE_SLOT] ->
        mine = generation[PAGE_SLOT];
        step = FILL
    :: owner[PAGE_SLOT] != OWNER(PAGE) && is_tentative[PAGE_SLOT] ->
        done()                     /* refused: there is no place */
    :: else ->
        claim(PAGE_SLOT, OWNER(PAGE));
        mine = generation[PAGE_SLOT];
#ifdef MUTANT_CONFIRMED_FIRST
        is_tentative[PAGE_SLOT] = false;
#endif
        step = FILL
    fi
}

inline claim(slot, who) {
    generation[slot]++;
    owner[slot] = who;
    is_tentative[slot] = true
}

inline fill_next() {
    word = 0;
    position++;
    if
    :: position < LENGTH -> step = FILL
    :: else -> position = 0; step = CONFIRM_PAGE
    fi
}

proctype request(byte ops)
{
    byte step = BEGIN;
    byte tick, clock;            /* its own time, and the key's */
    byte count;                  /* the state, as it was opened */
    short newest, replaced, event, word;
    byte position, before, mine;
    bool regrets;
#ifdef SOLO
    byte restarts;
#endif

    do
    :: d_step { RUNS && step == BEGIN -> begin(0) }
#if TICKS > 1
    :: d_step { RUNS && step == BEGIN -> begin(1) }
#endif
#if TICKS > 2
    :: d_step { RUNS && step == BEGIN -> begin(2) }
#endif
#if TICKS > 3
    :: d_step { RUNS && step == BEGIN -> begin(3) }
#endif
#if TICKS > 4
    :: d_step { RUNS && step == BEGIN -> begin(4) }
#endif

    /* open the key; its ring must be empty before it has a first state */

    :: d_step { RUNS && step == OPEN ->
        count = state;
        if
#ifdef DIRTY
        :: count == TENTATIVE -> step = WIPE
#endif
        :: else -> step = HELP
        fi
    }

#ifdef DIRTY
    :: d_step { RUNS && step == WIPE ->
#ifdef MUTANT_NO_WIPE
        position = LENGTH;
#else
        event = ring[position];
#endif
        if
        :: event == NONE -> wipe_next()
        :: else -> step = WIPE_CHECK
        fi
    }
    :: d_step { RUNS && step == WIPE_CHECK ->
#ifdef MUTANT_WIPE_LATE
        step = WIPE_SWAP
#else
        if
        :: state == TENTATIVE -> step = WIPE_SWAP
        :: else -> wipe_next()
        fi
#endif
    }
    :: d_step { RUNS && step == WIPE_SWAP ->
        if
        :: ring[position] == event ->
            ring[position] = NONE;
            wipe_next()
        :: else -> event = 0; step = WIPE
        fi
    }
    :: d_step { RUNS && step == CONFIRM ->
        if
        :: state == TENTATIVE ->
            state = 0;
            count = 0;
            step = HELP
        :: else -> restart()
        fi
    }
#endif

    /* an event more than is counted: its author may be dead */

    :: d_step { RUNS && step == HELP ->
        if
#ifndef MUTANT_NO_HELP
        :: IS_EVENT(ring[count % LENGTH], count) -> step = HELP_COUNT
#endif
        :: else ->
            if
            :: count == 0 -> scan_begin()
            :: else -> step = NEWEST
            fi
        fi
    }
    :: d_step { RUNS && step == HELP_COUNT ->
        if
        :: state == count ->
            assert(count < EVENTS);
            state++;
            count++;
            step = HELP
        :: else -> restart()
        fi
    }
    :: d_step { RUNS && step == NEWEST ->
        newest = ring[(count - 1) % LENGTH];
        if
        :: !IS_EVENT(newest, count - 1) -> restart()
        :: else ->
            if
            :: TICK(newest) > clock && !regrets -> clock = TICK(newest)
            :: else
            fi;
            scan_begin()
        fi
    }

    /* what is used? */

    :: d_step { RUNS && step == SCAN ->
        event = ring[(position - 1) % LENGTH];
        if
#ifdef MUTANT_TORN
        :: true -> scan_decide()
#else
        :: IS_EVENT(event, position - 1) -> scan_decide()
        :: else -> restart()
#endif
        fi
    }
    :: d_step { RUNS && step == SCAN_OLD ->
        event = IN_PAGE((position - 1) / PAGE_EVENTS,
                        (position - 1) % PAGE_EVENTS + 1);
        scan_old_decide()
    }
#ifdef REFUND
    :: d_step { RUNS && step == CREDITS -> read_credits() }
#endif
    :: d_step { RUNS && step == CHECK_USED ->
        if
        :: IS_USED_SAME -> decide()
        :: else -> restart()
        fi
    }

    /* record it in the newest event, or close that and put another */

    :: d_step { RUNS && step == MERGE -> merge(false) }
#ifdef REFUND
    :: d_step { RUNS && step == MERGE -> merge(true) }
#endif

    :: d_step { RUNS && step == CLOSE ->
#ifdef MUTANT_NO_CLOSE
        step = LOAD
#else
        if
        :: ring[(count - 1) % LENGTH] == newest ->
            newest = newest | CLOSED;
            ring[(count - 1) % LENGTH] = newest;
            step = LOAD
        :: else -> restart()
        fi
#endif
    }
    :: d_step { RUNS && step == LOAD ->
        replaced = ring[count % LENGTH];
        if
        :: IS_EVENT(replaced, count) -> restart()
        :: else -> step = CHECK_LOADED
        fi
    }
    :: d_step { RUNS && step == CHECK_LOADED ->
        if
        :: IS_LOADED_SAME -> load_decide()
        :: else -> restart()
        fi
    }

    /* it takes the place of what told what was before the oldest event */

    :: d_step { RUNS && step == MOVE ->
        event = ring[MOVED % LENGTH];
        if
        :: IS_EVENT(event, MOVED) -> step = CHECK_MOVED
        :: else -> restart()
        fi
    }
    :: d_step { RUNS && step == CHECK_MOVED ->
        if
        :: IS_SAME -> move_decide()
        :: else -> restart()
        fi
    }
    :: d_step { RUNS && step == OBTAIN -> obtain() }
    :: d_step { RUNS && step == FILL ->
        word = words[PAGE_SLOT * LENGTH + position];
        if
        :: word == PAGE_WORD -> fill_next()
        :: else -> step = FILL_CHECK
        fi
    }
    :: d_step { RUNS && step == FILL_CHECK ->
#ifdef MUTANT_CONFIRMED_FIRST
        step = FILL_SWAP
#else
        if
        :: generation[PAGE_SLOT] == mine && is_tentative[PAGE_SLOT] ->
            step = FILL_SWAP
        :: else -> fill_next()
        fi
#endif
    }
    :: d_step { RUNS && step == FILL_SWAP ->
        if
#ifdef MUTANT_FILL_BLINDLY
        :: true -> words[PAGE_SLOT * LENGTH + position] = PAGE_WORD; fill_next()
#else
        :: words[PAGE_SLOT * LENGTH + position] == word ->
            words[PAGE_SLOT * LENGTH + position] = PAGE_WORD;
            fill_next()
        :: else -> step = FILL
#endif
        fi
    }
    :: d_step { RUNS && step == CONFIRM_PAGE ->
        mine = 0;
        if
        :: owner[PAGE_SLOT] == OWNER(PAGE) && is_tentative[PAGE_SLOT] ->
            is_tentative[PAGE_SLOT] = false;
            event = 0;
            step = PUT
        :: else -> step = OBTAIN
        fi
    }

    :: d_step { RUNS && step == PUT -> put(false) }
#ifdef REFUND
    :: d_step { RUNS && step == PUT -> put(true) }
#endif

    :: d_step { RUNS && step == COUNT ->
        if
        :: state == count -> state++
        :: else
        fi;
        recorded()
    }

    /* take it back, or beside it if later events stand on it */

#ifdef REFUND
    :: d_step { RUNS && step == TAKE_BACK ->
        if
        :: count == 0 || TICK(newest) < tick -> done()
        :: count > 0 && TICK(newest) > tick ->
            credit[tick]++;
            admitted[tick]--;
            done()
#ifndef MUTANT_REFUND_CLOSED
        :: count > 0 && TICK(newest) == tick && IS_CLOSED(newest) ->
            credit[tick]++;
            admitted[tick]--;
            done()
#endif
        :: else ->
            if
            :: ring[(count - 1) % LENGTH] == newest ->
                ring[(count - 1) % LENGTH] = newest - 8;
                admitted[tick]--;
                check_recorded(TOTAL(newest) - 1);
                done()
            :: else -> restart()
            fi
        fi
    }
#endif

    /* crash, or be left alone, or be done */

#if CRASHES > 0
    :: d_step { step != IDLE && crashed < CRASHES -> crashed++; idle() }
#endif
#ifdef SOLO
    :: d_step { step != IDLE && solo == 0 -> solo = _pid }
    :: d_step { step != IDLE && solo != 0 && solo != _pid -> idle() }
#endif
    :: step == IDLE -> break
    od
}


/* ---- another key ---- */

#if OTHER > 0
active proctype other()
{
    byte slot, mine, place, times;

    do
    :: times < OTHER ->
        /* any slot of a page, be it live, but for what is under way */
        d_step {
            if
            :: !is_tentative[slot] ->
                claim(slot, SOMEBODY);
                mine = generation[slot];
                times++
            :: else -> mine = 0
            fi
        }
        if
        :: mine == 0
        :: else ->
            place = 0;
            do
            :: place < LENGTH ->
                words[slot * LENGTH + place] = WORD(mine, OTHERS);
                place++
            :: else -> break
            od;
            is_tentative[slot] = false;

            /* what it has written stays, as long as the slot is its own */
            if
            :: generation[slot] == mine ->
                d_step {
                    place = 0;
                    do
                    :: place < LENGTH ->
                        assert(generation[slot] != mine
                               || words[slot * LENGTH + place]
                                  == WORD(mine, OTHERS));
                        place++
                    :: else -> break
                    od;
                    place = 0
                }
            :: else
            fi
        fi;
        mine = 0;
        slot = (slot + 1) % PAGES
    :: else -> break
    od
}
#endif


/* ---- the beginning ---- */

init {
    atomic {
#ifdef DIRTY
        state = TENTATIVE;
        /* of the same generation, but not to the bit what will be there */
        ring[0] = EVENT(0, 7, 0);
        ring[1] = EVENT(1, 7, 1) | CLOSED;
#endif
        run request(OPS1);
        run request(OPS2);
#if OPS3 > 0
        run request(OPS3)
#endif
    }
}
