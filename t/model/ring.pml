/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * The protocol of a key's ring of events, that of src/core/history.hpp, as a
 * spin model in the manner of table.pml: every load and every compare-and-swap
 * of shared memory is one transition.  The key has its slot, which nobody else
 * claims, and so have its older events: table.pml is about claims.
 *
 * Processes make requests of one unit to an exact log.  Each is made at any
 * time, as if their clocks had nothing to do with each other.
 *
 * Parameters, all by -D.  The setting:
 *
 *   LENGTH    events in the ring, 2 or more
 *   OPS1 ..   requests that each of up to three processes makes
 *   TICKS     times there are
 *   SPAN      ticks of a window
 *   LIMIT     units in a window
 *   REFUND    who was admitted may take it back
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

/* the slots of older events: whether there is one, what was before it */
bool is_kept[EVENTS];
byte before_kept[EVENTS];
short old[EVENTS];

/* From here on nothing that the implementation has: the bookkeeping. */

byte admitted[TICKS];            /* units, less those taken back */
hidden byte n, all, in_window;

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
    assert(in_window <= LIMIT)
}

/* What others are admitted meanwhile only adds to what there was. */
inline check_rejected() {
#ifndef REFUND
    sum_up();
    assert(in_window == LIMIT)
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
#define KEEP          19
#define KEEP_SWAP     20
#define PUT           21
#define COUNT         22
#define TAKE_BACK     23
#define IDLE          24

/* what a process will not use again must not tell states apart */
inline forget() {
    count = 0; newest = 0; replaced = 0; event = 0; word = 0;
    position = 0; before = 0; moving = 0
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

#ifdef MUTANT_UNCHECKED_MOVE
#define IS_MOVED_SAME  true
#else
#define IS_MOVED_SAME  IS_SAME
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
    :: position == 0 -> before = 0; step = CHECK_USED
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
        :: IS_OVER(TICK(event)) -> step = CHECK_USED
        :: else ->
            position--;
            scan()
        fi
    fi;
    event = 0
}

inline scan_old_decide() {
    if
    :: event == NONE || IS_OVER(TICK(event)) ->
        if
        :: position + LENGTH > count
        :: else -> tell_before_old()
        fi;
        step = CHECK_USED
    :: else ->
        position--;
        if
        :: position == 0 -> before = 0; step = CHECK_USED
        :: else -> step = SCAN_OLD
        fi
    fi;
    event = 0
}

inline tell_before_old() {
    if
    :: position % LENGTH == 0 -> before = before_kept[position / LENGTH]
    :: else -> before = TOTAL(old[position - 1])
    fi
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

/* the events to be copied are position - 1, as `replaced`, and position */
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

inline move_decide() {
    if
    :: IS_OVER(TICK(event)) -> event = 0; step = PUT
    :: else -> step = OBTAIN
    fi
}

inline keep_next() {
    word = 0;
    moving--;
    if
    :: moving == 0 -> event = 0; step = PUT
    :: else -> step = KEEP
    fi
}

/* the second of two, or the only one, is `event` */
#define KEPT_POSITION  (MOVED + 1 - moving)
#define KEPT_EVENT     (moving == 1 -> event : replaced)
#define KEPT_WORD      EVENT(0, TOTAL(KEPT_EVENT), TICK(KEPT_EVENT))

proctype request(byte ops)
{
    byte step = BEGIN;
    byte tick, clock;            /* its own time, and the key's */
    byte count;                  /* the state, as it was opened */
    short newest, replaced, event, word;
    byte position, before, moving;
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
        event = (is_kept[(position - 1) / LENGTH] -> old[position - 1] : NONE);
        scan_old_decide()
    }
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
        :: IS_MOVED_SAME -> move_decide()
        :: else -> restart()
        fi
    }
    :: d_step { RUNS && step == OBTAIN ->
        if
        :: !is_kept[MOVED / LENGTH] ->
            is_kept[MOVED / LENGTH] = true;
            before_kept[MOVED / LENGTH] = (MOVED == 0 -> 0 : TOTAL(replaced))
        :: else
        fi;
        moving = (MOVED % LENGTH == 0 -> 1 : 2);
        step = KEEP
    }
    :: d_step { RUNS && step == KEEP ->
        word = old[KEPT_POSITION];
        if
        :: word == KEPT_WORD -> keep_next()
        :: else -> step = KEEP_SWAP
        fi
    }
    :: d_step { RUNS && step == KEEP_SWAP ->
        if
        :: old[KEPT_POSITION] == word -> old[KEPT_POSITION] = KEPT_WORD
        :: else
        fi;
        keep_next()
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

    /* take it back, unless later events stand on it */

#ifdef REFUND
    :: d_step { RUNS && step == TAKE_BACK ->
        if
        :: count == 0 || TICK(newest) != tick -> done()
#ifndef MUTANT_REFUND_CLOSED
        :: count > 0 && TICK(newest) == tick && IS_CLOSED(newest) -> done()
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
