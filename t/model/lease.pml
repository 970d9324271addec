/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * The protocol of a group of leases, that of src/core/lease.cpp, as a spin
 * model in the manner of table.pml: every load and every compare-and-swap of
 * shared memory is one transition.  nodes.pml is about what units are worth.
 *
 * Adders have an answer of Redis each: one unit of a key, for one of two
 * windows.  A spender spends units of key 0, and may return one.  All happens
 * at any time.  Terms are two values, the window and when it ends; a check is
 * all that it is made of.  Whoever is slow for ever is as good as dead, so that
 * there are no crashes of their own.
 *
 * Parameters, all by -D.  The setting:
 *
 *   LEASES    in the group, 1 or 2
 *   A1 ..     up to three adders: key * 2 + window of their answers
 *   SPENDS    by the spender
 *   RETRIES   of everything
 *   ANY_ORDER in which terms are read, as processors may
 *   LOSSLESS  no unit of the one key is lost, unless retries end: no lease that
 *             has terms is evicted, as if little time passed
 *
 * else any lease may be evicted at any time; and the MUTANT_s, each of which
 * leaves something out.
 */

#ifndef LEASES
#define LEASES  1
#endif
#ifndef SPENDS
#define SPENDS  1
#endif
#ifndef RETRIES
#define RETRIES  2
#endif

/* word: generation, units 2; term: generation, value 2 */
#define UNITS(w)           ((w) & 3)
#define VALUE(t)           ((t) & 3)
#define GENERATION(w)      ((w) >> 2)
#define TERM(w, v)         (GENERATION(w) * 4 + (v))
#ifdef MUTANT_NO_GENERATION
#define NEXT(w)            ((w) - UNITS(w))
#else
#define NEXT(w)            ((GENERATION(w) + 1) * 4)
#endif

/* generation, key 1, window 2, end 2; that of a new table is nobody's */
#define CHECK(k, w, a, b)  (1 + GENERATION(w) * 32 + (k) * 16 + (a) * 4 + (b))

#ifdef MUTANT_ANY_TERMS
#define IS_VALID(c, k, w, a, b)  \
    ((c) && ((c) - 1) / 16 == GENERATION(w) * 2 + (k))
#else
#ifdef MUTANT_ANY_GENERATION
#define IS_VALID(c, k, w, a, b)  \
    ((c) && ((c) - 1) % 32 == CHECK(k, 0, a, b) - 1)
#else
#define IS_VALID(c, k, w, a, b)  ((c) == CHECK(k, w, a, b))
#endif
#endif

#ifdef LOSSLESS
/* being written, or without terms since all units were taken */
#define IS_FREE(w, t)      (GENERATION(w) != GENERATION(t) || VALUE(t) == 0)
#else
#define IS_FREE(w, t)      true
#endif

byte word[LEASES];
byte window[LEASES];             /* the first of the terms, */
byte end[LEASES];                /* the last */
short check[LEASES];

bool now;                        /* which window it is */

/* From here on nothing that the implementation has: the bookkeeping. */

byte origin[LEASES];             /* of units in the word: key * 2 + window */
byte granted[4];                 /* and not spent, of each origin */
byte running;
bool gave_up;

/* What is moved, spent or returned is what it is taken for. */
inline check_units(l, whose) {
    assert(UNITS(word[l]) == 0 || origin[l] == (whose))
}


/* ---- one process ---- */

/* What is no longer used should not tell states apart. */
inline forget() {
    i = 0; w = 0; a = 0; b = 0;
    valid = false
}

inline judge_terms() {
    valid = IS_VALID(c, key, w, a, b);
    if
    :: valid
    :: else -> a = 0; b = 0
    fi;
    c = 0
}

inline read(l) {
    w = word[l];
#ifdef ANY_ORDER
    do
    :: (seen & 1) == 0 -> a = VALUE(window[l]); seen = seen | 1
    :: (seen & 2) == 0 -> b = VALUE(end[l]); seen = seen | 2
    :: (seen & 4) == 0 -> c = check[l]; seen = seen | 4
    :: atomic { seen == 7 -> seen = 0; judge_terms(); break }
    od
#else
    a = VALUE(window[l]);
    b = VALUE(end[l]);
    atomic { c = check[l]; judge_terms() }
#endif
}

inline find(least) {
    i = 0;
    do
    :: i < LEASES ->
        read(i);
        if
        :: valid && UNITS(w) >= least -> break
        :: else -> i++
        fi
    :: atomic { else -> valid = false; i = 0; w = 0; break }
    od
}

/* A loop is one more transition only if a compare-and-swap has failed. */
inline replace(what, with) {
    if
    :: ours ->
#ifdef MUTANT_STALE_WRITES
        what = with
#else
        c = what;
        do
        :: word[i] != mine ->
            ours = false;
            break
        :: else ->
            if
            :: atomic { what == c -> what = with; break }
            :: atomic { else -> c = what }
            fi
        od;
        c = 0
#endif
    :: else
    fi
}

inline add() {
    tries = 0;
    held = 1;
    do
    :: tries == RETRIES ->
        gave_up = true;
        break
    :: else ->
        tries++;
        left = 0;
        find(0);
        if
#ifdef MUTANT_ANY_WINDOW
        :: valid -> left = UNITS(w)
#else
        :: valid && a == part -> left = UNITS(w)
        :: valid && a > part -> break                 /* a late reply */
        :: valid && a < part
#endif
        :: !valid ->
            if
            :: i = 0
            :: LEASES > 1 -> i = 1
            fi;
            w = word[i];
            if
            :: IS_FREE(w, end[i])
            :: else -> goto again
            fi
        fi;

        /* a new generation; what was in the other one is ours, or lost */
        if
        :: atomic {
               word[i] == w ->
               if
               :: left > 0 -> check_units(i, key * 2 + part)
               :: else
               fi;
#ifdef MUTANT_LEFT_IN
               mine = NEXT(w) + UNITS(w);
#else
               mine = NEXT(w);
#endif
               word[i] = mine
           }
        :: atomic { else -> goto again }
        fi;
        atomic {
            held = held + left;
            left = 0;
            w = 0; a = 0; b = 0;
            valid = false
        }

#if LEASES > 1
        j = 1 - i;
        read(j);
        if
        :: atomic {
               valid && a == part && word[j] == w ->
               check_units(j, key * 2 + part);
               held = held + UNITS(w);
               word[j] = NEXT(w)
           }
        :: atomic { else }
        fi;
        atomic {
            j = 0; w = 0; a = 0; b = 0;
            valid = false
        }
#endif

        ours = true;
        replace(check[i], CHECK(key, mine, part, part + 1));
        replace(window[i], TERM(mine, part));
        replace(end[i], TERM(mine, part + 1));

        if
        :: atomic {
               ours && word[i] == mine ->
               word[i] = mine - UNITS(mine) + held;
               origin[i] = key * 2 + part;
               break
           }
        :: atomic { else }
        fi;
again:  atomic { forget(); mine = 0; ours = false }
    od
}

proctype adder(bool key; byte part) {
    byte i, w, a, b, seen, held, left, tries, mine;
    short c;
    bool valid, ours;
#if LEASES > 1
    byte j;
#endif

    now >= part;                                      /* Redis has answered */
    granted[key * 2 + part]++;
    add();
    atomic {
        forget();
        held = 0; left = 0; tries = 0; mine = 0;
        ours = false;
        running--
    }
}

proctype spender() {
    byte i, w, a, b, seen, tries, spends, part, spent;
    short c;
    bool valid, key, clock;

    do
    :: spends == SPENDS -> break
    :: else ->
        spends++;
        clock = now;
        tries = 0;
        do
        :: tries == RETRIES -> goto none
        :: else ->
            tries++;
            find(1);
            if
            :: !valid -> goto none
#ifndef MUTANT_NO_UNTIL
            :: valid && clock >= b -> goto none
#endif
            :: else
            fi;
            if
            :: atomic {
                   word[i] == w ->
                   assert(origin[i] / 2 == key && origin[i] % 2 >= clock);
                   spent = origin[i];
                   assert(granted[spent] > 0);
                   granted[spent]--;
                   part = a;
                   word[i] = w - 1;
                   break
               }
            :: atomic { else }
            fi
        od;

        if
        :: true                                       /* it is served */
        :: true ->
            tries = 0;
            do
            :: tries == RETRIES -> break
            :: else ->
                tries++;
                find(0);
                if
                :: !valid -> skip
                :: valid && clock >= b -> break
#ifndef MUTANT_RETURN_TO_ANY
                :: valid && clock < b && a != part -> break
#endif
                :: else ->
                    if
                    :: atomic {
                           word[i] == w && UNITS(w) < 3 ->
                           check_units(i, spent);
                           granted[spent]++;
                           origin[i] = spent;
                           word[i] = w + 1;
                           break
                       }
                    :: atomic { else }
                    fi
                fi
            od
        fi;
none:   atomic { forget(); part = 0; spent = 0; tries = 0 }
    od;
    running--
}

init {
    atomic {
        running = 1;
        run spender();
        running++;
        run adder(A1 / 2, A1 % 2);
#ifdef A2
        running++;
        run adder(A2 / 2, A2 % 2);
#endif
#ifdef A3
        running++;
        run adder(A3 / 2, A3 % 2);
#endif
    }

    now = true;

    running == 0;

#ifdef LOSSLESS
    /* units that are in a lease with terms of their key */
    atomic {
        byte l, units;

        do
        :: l < LEASES ->
            if
            :: check[l] == CHECK(A1 / 2, word[l], VALUE(window[l]),
                                 VALUE(end[l])) ->
                units = units + UNITS(word[l])
            :: else
            fi;
            l++
        :: else -> break
        od;
        assert(gave_up || units == granted[A1])
    }
#endif
}
