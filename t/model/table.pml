/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * The table's protocol for finding, inserting and evicting a key, for looking
 * at it and for taking back what it was charged, as a spin model: every load
 * and every compare-and-swap of shared memory is one transition, and any
 * interleaving of them is possible.  Sequential consistency is assumed.  `run`
 * beside this file says what is checked.
 *
 * A slot is two words: a tag, (key, generation), and a state, (payload,
 * generation).  If the generations are equal the slot is a copy of the key
 * with the payload as its history, or none at all if the payload is DEAD.  If
 * the state's is one behind, the slot is a tentative copy: claimed for the
 * key, which has no history yet and will have one here only if it turns out
 * not to have another copy.  Anything else is two words read at two times.
 *
 * Parameters, all by -D.  The setting:
 *
 *   N         slots, 2 or 3, all of them candidates of every key: keys that
 *             have less in common meet less
 *   NK, OPS   processes that acquire K, and how often each
 *   NM        processes that acquire M, once each
 *   NL        0 or 1 process that looks at K, once
 *   REFUND    who acquired a unit of K may take it back
 *   SPARE     M takes no slot with a history of K unless that is over, so that
 *             no unit of K is ever given up
 *   LIMIT     units of one key that may be admitted
 *   FULL      1: all slots start with live keys that nobody asks for, one of
 *             which may be M; 2: slot 0 does; 3: all do, and slot 0 with K,
 *             whose history is over; 0: none, all start unused
 *   CRASHES   processes that may stop for good between any two steps
 *   SOLO      at any point all processes but one may stop for good; the one
 *             left has to finish each operation within SOLO restarts
 *   CLAIMS    claims of one slot; who wants one more stops for good, so that
 *             generations wrap no more often than one wants
 *   WRAPS     assert only that whoever is left alone finishes
 *
 * The protocol:
 *
 *   UNUSED    a key takes the first unused slot its lookup saw, if any; else,
 *             and without it, any slot at all
 *   CHOOSY    a key takes any slot as its lookup saw it, but one that was
 *             tentative only if all were
 *   RECHECK   unless the generations were equal a tag is read again after
 *             its state: a process that stood in between for three claims of
 *             the slot would take another key's history for tentative
 *   MEND      with RECHECK: a slot whose words do not fit together is made
 *             dead, since after four claims even that may come about
 *
 * and the MUTANT_s, each of which leaves something out.
 */

#ifndef N
#define N  2
#endif
#ifndef NK
#define NK  2
#endif
#ifndef OPS
#define OPS  1
#endif
#ifndef NM
#define NM  0
#endif
#ifndef NL
#define NL  0
#endif
#ifndef LIMIT
#define LIMIT  2
#endif
#ifndef FULL
#define FULL  0
#endif
#ifndef CRASHES
#define CRASHES  0
#endif

#define GENS  4
#define NP    (NK + NM + NL)

/* keys: 0 is that of a slot never used, OTHER + i is slot i's at first */
#define K      1
#define M      2
#define OTHER  3

#define DEAD  7

/* both words are a value and a generation, in one byte to save memory */
#define WORD(value, gen)  ((value) * GENS + (gen))
#define VALUE(word)       ((word) / GENS)
#define GEN(word)         ((word) % GENS)

#define NEXT_GEN(gen)  (((gen) + 1) % GENS)
#define PREV_GEN(gen)  (((gen) + GENS - 1) % GENS)

/* what a tag and a state say together */
#define LIVE(t, s)       (GEN(s) == GEN(t) && VALUE(s) != DEAD)
#define BURIED(t, s)     (GEN(s) == GEN(t) && VALUE(s) == DEAD)
#define TENTATIVE(t, s)  (GEN(s) == PREV_GEN(GEN(t)))
#define UNFIT(t, s)      (!(GEN(s) == GEN(t) || TENTATIVE(t, s)))

#ifdef RECHECK
#define DOUBTFUL(t, s)   (GEN(s) != GEN(t))
#else
#define DOUBTFUL(t, s)   false
#endif

byte tag[N];
byte state[N];

/* From here on nothing that the implementation has: the bookkeeping. */

byte written_for[N];             /* the key whose payload it is; 0: dead */
byte admitted[M + 1];            /* units, by key, less those taken back */

#if NL > 0
byte on_record;                  /* bit u: while the look lasts, there was a
                                    moment with u units of K in the table */
#endif

#if CRASHES > 0
byte crashed;
#endif

#ifdef CLAIMS
byte claims[N];
#endif

#ifdef SOLO
byte solo;                       /* the process that goes on alone */
byte gone;                       /* processes done or stopped */

#define RUNS  (solo == 0 || (solo == _pid && gone == NP - 1))
#else
#define RUNS  true
#endif

/* the process left alone is not to be stopped */
#if defined(CLAIMS) && defined(SOLO)
#define SPENT(i)  (claims[i] >= CLAIMS && solo == 0)
#elif defined(CLAIMS)
#define SPENT(i)  (claims[i] >= CLAIMS)
#else
#define SPENT(i)  false
#endif


/* ---- assertions ---- */

#if N == 2
#define ALL(f)      (f(0) && f(1))
#define COPIES(k)   (COPY(0, k) + COPY(1, k))
#define UNITS       (UNITS_IN(0) + UNITS_IN(1))
#else
#define ALL(f)      (f(0) && f(1) && f(2))
#define COPIES(k)   (COPY(0, k) + COPY(1, k) + COPY(2, k))
#define UNITS       (UNITS_IN(0) + UNITS_IN(1) + UNITS_IN(2))
#endif

#define FITS(i)     (!UNFIT(tag[i], state[i]))
#define COPY(i, k)  (VALUE(tag[i]) == k && LIVE(tag[i], state[i]))
#define UNITS_IN(i) (COPY(i, K) -> VALUE(state[i]) : 0)

#ifdef WRAPS
#define HOLDS(it)  true
#else
#define HOLDS(it)  assert(it)
#endif

inline check_memory() {
    HOLDS(ALL(FITS));
    HOLDS(COPIES(K) <= 1);
    HOLDS(COPIES(M) <= 1);
#if NL > 0
    if
    :: on_record != 0 -> on_record = on_record | (1 << UNITS)
    :: else
    fi
#endif
}

/* Unless K is evicted its copy counts all that was admitted, and no more. */
#if NM == 0 || defined(SPARE)
#define EXACT  (key == K)
#else
#define EXACT  false
#endif

inline check_admitted(payload) {
#ifndef WRAPS
    admitted[key]++;
#endif
    HOLDS(!EXACT || (admitted[key] == payload && payload <= LIMIT))
}

/* A history that is found, were it only to reject, is the key's own. */
inline check_found() {
    HOLDS(VALUE(t) != key || !LIVE(t, s) || state[x] != s ||
        written_for[x] == key)
}

inline check_rejected() {
    HOLDS(!EXACT || admitted[key] == LIMIT)
}

/* What a look tells was so at some moment of it. */
inline look_begins() {
#if NL > 0
    on_record = 1 << UNITS
#else
    skip
#endif
}

inline check_look(units) {
#if NL > 0
    HOLDS(on_record & (1 << (units)));
    on_record = 0
#else
    skip
#endif
}

inline check_refunded(payload) {
#ifndef WRAPS
    if
    :: admitted[key] > 0 -> admitted[key]--
    :: else                      /* of what was evicted before */
    fi;
#endif
    HOLDS(!EXACT || admitted[key] == payload)
}


/* ---- one process ---- */

/* what it does next, one access to shared memory each */
#define FIND_TAG      0
#define FIND_STATE    1
#define FIND_AGAIN    2
#define HIT           3
#define VICTIM_TAG    4
#define VICTIM_STATE  5
#define VICTIM_AGAIN  6
#define VICTIM_KILL   7
#define VICTIM_CLAIM  8
#define OTHER_TAG     9
#define OTHER_STATE   10
#define OTHER_AGAIN   11
#define YIELD         12
#define DUEL          13
#define CONFIRM       14
#define MEND_X        15
#define MEND_Y        16
#define LOOK_TAG      17
#define LOOK_STATE    18
#define LOOK_AGAIN    19
#define LOOK_MEND     20
#define TAKE_BACK     21
#define IDLE          22

/* what a process will not use again must not tell states apart */
inline forget() {
    x = 0; t = 0; s = 0;
    y = 0; u = 0; v = 0;
    victim = 0; vt = 0; vs = 0
}

inline count_restart() {
#ifdef SOLO
    if
    :: solo -> restarts++; assert(restarts <= SOLO)
    :: else
    fi
#else
    skip
#endif
}

inline restart() {
    count_restart();
    forget();
    step = FIND_TAG
}

inline read_again() {
    count_restart();
    t = 0; s = 0;
    step = FIND_TAG
}

inline idle() {
    forget();
    ops = 0;
#ifdef SOLO
    restarts = 0;
    gone++;
#endif
    step = IDLE
}

inline operation_done() {
    ops--;
    if
    :: ops == 0 -> idle()
    :: else ->
        forget();
#ifdef SOLO
        restarts = 0;
#endif
        step = FIND_TAG
    fi
}

/* a unit is on record; who wants it back looks for the key's copy first */
inline acquired(regret) {
    if
    :: regret && key == K -> forget(); step = LOOK_TAG
    :: else -> operation_done()
    fi
}

/* the state of slot i was as seen, from which follows that its tag is too */
inline bury(i, tagged) {
    HOLDS(tag[i] == tagged);
    state[i] = WORD(DEAD, GEN(tagged));
    written_for[i] = 0;
    check_memory()
}

inline mend(i, tagged, seen) {
    if
    :: state[i] == seen ->
        state[i] = WORD(DEAD, GEN(tagged));
        written_for[i] = 0
    :: else
    fi
}

#if defined(MUTANT_NO_KILL)
#define AFTER_CHOICE  VICTIM_CLAIM
#elif defined(MUTANT_KILL_TENTATIVE)
#define AFTER_CHOICE  (TENTATIVE(t, s) -> VICTIM_KILL : VICTIM_CLAIM)
#else
#define AFTER_CHOICE \
    (VALUE(t) == 0 || BURIED(t, s) -> VICTIM_CLAIM : VICTIM_KILL)
#endif

inline find_next() {
    t = 0; s = 0;
    x++;
    if
    :: x < N -> step = FIND_TAG
    :: x == N && victim == 0 -> x = 0; step = VICTIM_TAG
    :: x == N && victim != 0 ->
        x = victim - 1; t = vt; s = vs;
        victim = 0; vt = 0; vs = 0;
        step = AFTER_CHOICE
    fi
}

#ifdef SPARE
#define EVICTABLE \
    (!(key == M && VALUE(t) == K && LIVE(t, s) && VALUE(s) > 0))
#else
#define EVICTABLE  true
#endif

/*
 * CHOOSY: is the slot in hand to be taken, rather than the one so far?  Both
 * ways of being greedy are tried for each slot.
 */
inline find_victim(greedy) {
    if
    :: EVICTABLE && (victim == 0 || (!TENTATIVE(t, s) && TENTATIVE(vt, vs)) ||
        (greedy && TENTATIVE(t, s) == TENTATIVE(vt, vs))) ->
        victim = x + 1; vt = t; vs = s
    :: else
    fi
}

inline find_decide(greedy) {
    if
    :: UNFIT(t, s) ->
#ifdef MEND
        step = MEND_X
#else
        read_again()
#endif
    :: VALUE(t) == key && LIVE(t, s) ->
        if
        :: VALUE(s) < LIMIT ->
            victim = 0; vt = 0; vs = 0;
            step = HIT
        :: else ->
            check_rejected();
            operation_done()
        fi
    :: VALUE(t) == key && TENTATIVE(t, s) -> confirm_begin()
    :: else ->
#ifdef CHOOSY
        find_victim(greedy);
#endif
        find_next()
    fi
}

inline find_state(greedy) {
    s = state[x];
    if
    :: DOUBTFUL(t, s) -> step = FIND_AGAIN
    :: else ->
        check_found();
        find_decide(greedy)
    fi
}

inline find_again(greedy) {
    if
    :: tag[x] == t -> find_decide(greedy)
    :: else -> read_again()
    fi
}

inline victim_decide() {
    if
    :: UNFIT(t, s) ->
#ifdef MEND
        step = MEND_X
#else
        restart()
#endif
#ifndef MUTANT_SELF
    :: VALUE(t) == key && (LIVE(t, s) || TENTATIVE(t, s)) ->
        restart()                /* it came while the lookup went past */
#endif
    :: !EVICTABLE ->
        x = 0; t = 0; s = 0;
        step = VICTIM_TAG
    :: else -> step = AFTER_CHOICE
    fi
}

inline confirm_begin() {
    victim = 0; vt = 0; vs = 0;
#ifdef MUTANT_NO_SCAN
    step = CONFIRM
#else
    y = (x == 0 -> 1 : 0);
    step = OTHER_TAG
#endif
}

inline other_next() {
    u = 0; v = 0;
    y++;
    if
    :: y == x -> y++
    :: else
    fi;
    if
    :: y < N -> step = OTHER_TAG
    :: else -> y = 0; step = CONFIRM
    fi
}

inline other_decide() {
    if
    :: BURIED(u, v) -> other_next()
    :: LIVE(u, v) ->
        y = 0; u = 0; v = 0;
        step = YIELD
    :: TENTATIVE(u, v) ->
#if defined(MUTANT_NO_DUEL)
        restart()
#elif defined(MUTANT_MODEST)
        y = 0; u = 0; v = 0;
        step = YIELD
#else
        step = DUEL
#endif
    :: else ->
#ifdef MEND
        step = MEND_Y
#else
        restart()
#endif
    fi
}

inline victim_tag(i) {
    x = i;
    t = tag[x];
    step = VICTIM_STATE
}

inline hit(regret) {
    if
    :: state[x] == s ->
        HOLDS(written_for[x] == key);
        state[x] = WORD(VALUE(s) + 1, GEN(s));
        check_admitted(VALUE(s) + 1);
        check_memory();
        acquired(regret)
    :: else -> restart()
    fi
}

inline confirm(regret) {
    if
    :: state[x] == s ->
        HOLDS(tag[x] == t);
        state[x] = WORD(1, GEN(t));
        written_for[x] = key;
        check_admitted(1);
        check_memory();
        acquired(regret)
    :: else -> restart()
    fi
}

/* all that follows may be done for a look, or for a refund */
inline look_done(units) {
    if
    :: ops == 0 ->
        check_look(units);
        idle()
    :: ops > 0 && units > 0 -> step = TAKE_BACK
    :: ops > 0 && units == 0 ->
        HOLDS(!EXACT);           /* or what was admitted is lost */
        operation_done()
    fi
}

inline look_next() {
    t = 0; s = 0;
    x++;
    if
    :: x < N -> step = LOOK_TAG
    :: else -> look_done(0)
    fi
}

inline look_reread() {
    count_restart();
    t = 0; s = 0;
    step = LOOK_TAG
}

inline look_decide() {
    if
    :: BURIED(t, s) -> look_next()
    :: LIVE(t, s) -> look_done(VALUE(s))
    :: TENTATIVE(t, s) ->
#if defined(MUTANT_LOOK_FIRST)
        look_done(0)
#elif defined(MUTANT_LOOK_TENTATIVE)
        look_done(VALUE(s))
#else
        look_next()
#endif
    :: UNFIT(t, s) ->
#ifdef MEND
        step = LOOK_MEND
#else
        look_reread()
#endif
    fi
}

#ifdef MUTANT_REFUND_BLINDLY
#define IS_AS_SEEN  true
#else
#define IS_AS_SEEN  (state[x] == s)
#endif

/* a process without operations only looks */
proctype acquire(byte key; byte ops)
{
    byte step = (ops > 0 -> FIND_TAG : LOOK_TAG);
    byte x, t, s;                /* a slot, its tag and its state as seen */
    byte y, u, v;                /* another one, while x is to be confirmed */
    byte victim, vt, vs;         /* 1 + a slot that might be taken, as seen */
#ifdef SOLO
    byte restarts;
#endif

    do
    /* look the key up */

    :: d_step { RUNS && step == FIND_TAG ->
        t = tag[x];
        if
#ifdef CHOOSY
        :: true -> step = FIND_STATE     /* it needs the state to choose */
#else
        :: VALUE(t) == key -> step = FIND_STATE
#ifdef UNUSED
        :: VALUE(t) == 0 && victim == 0 ->
            victim = x + 1;              /* vt and vs are 0 as they are */
            find_next()
#endif
        :: else -> find_next()
#endif
        fi
    }

    :: d_step { RUNS && step == FIND_STATE -> find_state(false) }
#ifdef CHOOSY
    :: d_step { RUNS && step == FIND_STATE -> find_state(true) }
#endif

#ifdef RECHECK
    :: d_step { RUNS && step == FIND_AGAIN -> find_again(false) }
#ifdef CHOOSY
    :: d_step { RUNS && step == FIND_AGAIN -> find_again(true) }
#endif
#endif

    :: d_step { RUNS && step == HIT -> hit(false) }
#ifdef REFUND
    :: d_step { RUNS && step == HIT && key == K -> hit(true) }
#endif

    /* take a slot: whichever, so that this holds for any eviction policy */

    :: d_step { RUNS && step == VICTIM_TAG -> victim_tag(0) }
    :: d_step { RUNS && step == VICTIM_TAG -> victim_tag(1) }
#if N > 2
    :: d_step { RUNS && step == VICTIM_TAG -> victim_tag(2) }
#endif

    :: d_step { RUNS && step == VICTIM_STATE ->
        s = state[x];
        if
        :: DOUBTFUL(t, s) -> step = VICTIM_AGAIN
        :: else -> victim_decide()
        fi
    }

#ifdef RECHECK
    :: d_step { RUNS && step == VICTIM_AGAIN ->
        if
        :: tag[x] == t -> victim_decide()
        :: else -> restart()
        fi
    }
#endif

    /*
     * Or its owner could yet confirm it, under our tag, or use what was chosen
     * for being over.
     */
    :: d_step { RUNS && step == VICTIM_KILL ->
        if
        :: state[x] == s ->
            bury(x, t);
            s = state[x];
            step = VICTIM_CLAIM
        :: else -> restart()
        fi
    }
    :: d_step { RUNS && step == VICTIM_CLAIM ->
        if
        :: tag[x] == t && SPENT(x) -> idle()
        :: tag[x] == t && !SPENT(x) ->
            t = WORD(key, NEXT_GEN(GEN(t)));
            tag[x] = t;
#ifdef CLAIMS
            claims[x]++;
#endif
            check_memory();
            confirm_begin()
        :: else -> restart()
        fi
    }

    /*
     * Confirm it, unless there is another copy.  Of two claims the later is
     * confirmed only by who has looked at all slots since it was made, and so
     * has met the earlier.
     */

    :: d_step { RUNS && step == OTHER_TAG ->
        u = tag[y];
        if
        :: VALUE(u) == key -> step = OTHER_STATE
        :: else -> other_next()
        fi
    }

    :: d_step { RUNS && step == OTHER_STATE ->
        v = state[y];
        if
        :: DOUBTFUL(u, v) -> step = OTHER_AGAIN
        :: else -> other_decide()
        fi
    }

#ifdef RECHECK
    :: d_step { RUNS && step == OTHER_AGAIN ->
        if
        :: tag[y] == u -> other_decide()
        :: else -> restart()
        fi
    }
#endif

    :: d_step { RUNS && step == YIELD ->
        if
        :: state[x] == s -> bury(x, t)
        :: else
        fi;
        restart()
    }
    /* both sides agree on who gives way, or they might do so for ever */
    :: d_step { RUNS && step == DUEL ->
        if
        :: y > x && state[y] == v -> bury(y, u)
        :: y < x && state[x] == s -> bury(x, t)
        :: else
        fi;
        restart()
    }
    :: d_step { RUNS && step == CONFIRM -> confirm(false) }
#ifdef REFUND
    :: d_step { RUNS && step == CONFIRM && key == K -> confirm(true) }
#endif

#ifdef MEND
    :: d_step { RUNS && step == MEND_X -> mend(x, t, s); restart() }
    :: d_step { RUNS && step == MEND_Y -> mend(y, u, v); restart() }
#endif

#if NL > 0 || defined(REFUND)
    /* find the key's confirmed copy, which a tentative one may stand before */

    :: d_step { RUNS && step == LOOK_TAG ->
        if
        :: x == 0 && ops == 0 -> look_begins()
        :: else
        fi;
        t = tag[x];
        if
        :: VALUE(t) == key -> step = LOOK_STATE
        :: else -> look_next()
        fi
    }

    :: d_step { RUNS && step == LOOK_STATE ->
        s = state[x];
        if
        :: DOUBTFUL(t, s) -> step = LOOK_AGAIN
        :: else -> look_decide()
        fi
    }

#ifdef RECHECK
    :: d_step { RUNS && step == LOOK_AGAIN ->
        if
        :: tag[x] == t -> look_decide()
        :: else -> look_reread()
        fi
    }
#endif

#ifdef MEND
    :: d_step { RUNS && step == LOOK_MEND -> mend(x, t, s); look_reread() }
#endif
#endif

#ifdef REFUND
    :: d_step { RUNS && step == TAKE_BACK ->
        if
        :: IS_AS_SEEN ->
            HOLDS(written_for[x] == key);
            state[x] = WORD(VALUE(s) - 1, GEN(t));
            check_refunded(VALUE(s) - 1);
            check_memory();
            operation_done()
        :: else ->
            count_restart();
            forget();
            step = LOOK_TAG
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

inline occupy(i, k) {
    tag[i] = WORD(k, 0);
    state[i] = WORD(1, 0);
    written_for[i] = k
}

init {
    byte i;

    d_step {
#if FULL == 3
        occupy(0, K);
        state[0] = WORD(0, 0);
#elif FULL > 0
        occupy(0, OTHER);
#endif
#if FULL == 1 || FULL == 3
        occupy(1, OTHER + 1);
#if N > 2
        occupy(2, OTHER + 2);
#endif
#endif
        skip
    }

#if FULL == 1 && NM > 0
    if
    :: d_step { occupy(0, M) }
    :: d_step { occupy(N - 1, M) }
    :: skip
    fi;
#endif

    atomic {
        i = 0;
        do
        :: i < NK -> run acquire(K, OPS); i++
        :: else -> break
        od;
#if NM > 0
        i = 0;
        do
        :: i < NM -> run acquire(M, 1); i++
        :: else -> break
        od;
#endif
#if NL > 0
        run acquire(K, 0);
#endif
        i = 0
    }
}
