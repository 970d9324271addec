/*
 * Copyright (C) the limit_sliding authors
 */

/*
 * The protocol of requests in flight, that of src/core/holds, as a spin model
 * in the manner of table.pml: every load, store and compare-and-swap of shared
 * memory is one transition.
 *
 * Workers take and return a unit of one key, each with one entry of the ledger.
 * Another key may take the slot while the key is at rest.  A killer kills
 * workers at any time, and a process that gives back the units of a dead one;
 * then another one begins again.
 *
 * Parameters, all by -D: WORKERS, 2 or 3; OPS, takes of each; LIMIT; RESTS, how
 * often the other key may come; CRASHES, 1 or 2 workers may die; LOST: one that gives
 * back dies, too; and the MUTANT_s, each of which leaves something out.
 */

#ifndef WORKERS
#define WORKERS 2
#endif
#ifndef OPS
#define OPS     2
#endif
#ifndef LIMIT
#define LIMIT   1
#endif
#ifndef RESTS
#define RESTS   1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#ifndef LOST
#define LOST    0
#endif

#define FREE      0
#define TAKING    1
#define HELD      2
#define RETURNING 3

/* word of an entry: number, status 2.  Numbers need not wrap in the model: it asserts that no
 * mark outlasts its change, so that no later change can be taken for it. */
#define WORD(s, n)   ((n) * 4 + (s))
#define STATUS(w)    ((w) & 3)
#define NUMBER(w)    ((w) >> 2)
#define IS_CHANGING(w) (STATUS(w) == TAKING || STATUS(w) == RETURNING)
#define CONFIRMED(w) WORD((STATUS(w) == TAKING -> HELD : FREE), NUMBER(w))

/* state: number, entry + 1 in 2, units 2; 0: no units, or the key has no slot */
#define STATE(u, e, w) (NUMBER(w) * 16 + ((e) + 1) * 4 + (u))
#define UNITS(s)     ((s) & 3)
#define ENTRY(s)     ((((s) >> 2) & 3) - 1)
#define MARK(s)      ((s) >> 2)

#ifndef MUTANT_MARK_OF_THE_DEAD_STAYS
#define IS_MARKED(s, e, w) (MARK(s) == MARK(STATE(0, e, w)))
#else
#define IS_MARKED(s, e, w) (MARK(s) == MARK(STATE(0, e, w)) && IS_CHANGING(w))
#endif

byte word[WORKERS];
short state;

/* From here on nothing that the implementation has: the bookkeeping. */

bool counted[WORKERS];           /* the entry's unit is in the state */
bool dead[WORKERS];
bool gone[WORKERS];              /* ended, or its units were given back */
bool locked[WORKERS];            /* by one that gives back */
bool lost[2];                    /* processes that give back */

/* Whoever replaces a state does so first. */
inline confirm(s) {
    atomic {
        if
        :: MARK(s) != 0 -> m = ENTRY(s); w = word[m]
        :: else
        fi;
        if
        :: NUMBER(w) == ((s) >> 4) && IS_CHANGING(w)
        :: else -> m = 0; w = 0
        fi
    };
    if
    :: w != 0 ->
       atomic { if :: word[m] == w -> word[m] = CONFIRMED(w) :: else fi; m = 0; w = 0 }
    :: else
    fi
}

/* Removes the mark of a change that has ended. */
inline remove_mark(mark) {
    atomic {
        if
#ifndef MUTANT_MARK_STAYS
        :: MARK(state) == mark -> state = UNITS(state)
#endif
        :: else
        fi
    }
}

inline take(e) {
    atomic {
        assert(ENTRY(state) != e);
        n = NUMBER(word[e]) + 1;
#ifndef MUTANT_ENTRY_LATE
        word[e] = WORD(TAKING, n)
#endif
    };
    do
    :: atomic {
           s = state;
           if
           :: UNITS(s) >= LIMIT -> word[e] = WORD(FREE, n); s = 0; break
           :: else
           fi
       };
#ifndef MUTANT_TAKE_UNCONFIRMED
       confirm(s);
#endif
       atomic {
           if
           :: state == s ->
              state = STATE(UNITS(s) + 1, e, WORD(0, n));
              counted[e] = true;
              s = 0;
              break
           :: else -> s = 0
           fi
       }
    od;
    if
    :: counted[e] ->
       word[e] = WORD(HELD, n);
       remove_mark(MARK(STATE(0, e, WORD(0, n))));
       n = 0
    :: else -> n = 0
    fi
}

inline return_unit(e) {
    atomic { n = NUMBER(word[e]) + 1; word[e] = WORD(RETURNING, n) };
    do
    :: atomic { s = state; assert(UNITS(s) > 0) };
#ifndef MUTANT_RETURN_UNCONFIRMED
       confirm(s);
#endif
       atomic {
           if
           :: state == s ->
              state = STATE(UNITS(s) - 1, e, WORD(0, n));
              assert(counted[e]);
              counted[e] = false;
              s = 0;
              break
           :: else -> s = 0
           fi
       }
    od;
    word[e] = WORD(FREE, n);
    remove_mark(MARK(STATE(0, e, WORD(0, n))));
    n = 0
}

proctype worker(byte e) {
    byte i, n, w, m;
    short s;

    {
        do
        :: i < OPS ->
           i++;
           take(e);
           if
           :: counted[e] -> return_unit(e)
           :: else
           fi
        :: else -> break
        od;
        atomic { i = 0; gone[e] = true }
    } unless { atomic { dead[e] -> i = 0; n = 0; w = 0; m = 0; s = 0 } }
}

/* Holdings::give_back() */
proctype recoverer(byte e; byte id) {
    byte n, w, m;
    short s;

end:
    atomic { dead[e] && !locked[e] && !gone[e] -> locked[e] = true };
    {
        do
        :: n = word[e];
           s = state;
           if
           :: IS_MARKED(s, e, n) ->
              if
              :: IS_CHANGING(n) -> confirm(s)
              :: else -> atomic { if :: state == s -> state = UNITS(s) :: else fi }
              fi
           :: else ->
              if
              :: STATUS(n) == FREE -> break
              :: STATUS(n) == HELD ->
                 atomic {
                     if
                     :: word[e] == n -> word[e] = WORD(RETURNING, NUMBER(n) + 1)
                     :: else
                     fi
                 }
              :: else ->
                 if
#ifndef MUTANT_NOT_READ_AGAIN
                 :: word[e] != n
                 :: word[e] == n ->
#else
                 :: true ->
#endif
                    if
                    :: STATUS(n) == TAKING || s == 0 ->
                       atomic {
                           if
                           :: word[e] == n -> word[e] = WORD(FREE, NUMBER(n))
                           :: else
                           fi
                       }
                    :: else ->
#ifndef MUTANT_GIVEN_BACK_UNCONFIRMED
                       confirm(s);
#endif
                       atomic {
                           if
                           :: state == s ->
                              assert(UNITS(s) > 0 && counted[e]);
                              state = STATE(UNITS(s) - 1, e, n);
                              counted[e] = false
                           :: else
                           fi
                       }
                    fi
                 fi
              fi
           fi;
           s = 0
        od;
        atomic { n = 0; s = 0; gone[e] = true; locked[e] = false }
    } unless {
        atomic { lost[id] -> locked[e] = false; n = 0; w = 0; m = 0; s = 0 }
    }
}

/* Another key, which takes a slot without units, and gives it back. */
proctype other() {
    byte i, w, m;
    short s;

    do
    :: i < RESTS ->
       i++;
       s = state;
       if
       :: s != 0 && UNITS(s) == 0 ->
#ifndef MUTANT_RESTED_UNCONFIRMED
          confirm(s);
#endif
          atomic { if :: state == s -> state = 0 :: else fi }
       :: else
       fi;
       s = 0
    :: else -> break
    od
}

proctype killer() {
end:
    do
    :: atomic { !dead[0] && !gone[0] -> dead[0] = true }
#if CRASHES > 1
    :: atomic { !dead[1] && !gone[1] -> dead[1] = true }
#endif
#if LOST
    :: atomic { locked[0] && !lost[0] -> lost[0] = true }
#endif
    od
}

#define ALL_GONE (gone[0] && gone[1] && gone[WORKERS - 1])

init {
    atomic {
        run worker(0);
        run worker(1);
#if WORKERS > 2
        run worker(2);
#endif
        run recoverer(0, 0);
#if LOST
        run recoverer(0, 1);
#endif
#if CRASHES > 1
        run recoverer(1, 1);
#endif
#if RESTS
        run other();
#endif
        run killer()
    };
    ALL_GONE;
    atomic {
        assert(UNITS(state) == 0 && MARK(state) == 0);
        assert(STATUS(word[0]) == FREE && STATUS(word[1]) == FREE)
    }
}
