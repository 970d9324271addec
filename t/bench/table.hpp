/* Copyright (C) the limit_sliding authors */

/* Tables in Markdown that read well as it is. */

#pragma once

#include <stddef.h>

#define TABLE_ROWS 24
#define TABLE_COLUMNS 8

/* Zeroed at first. */
struct table_t {
    size_t row;
    size_t column; /* of the next cell */
    size_t columns;
    char cell[TABLE_ROWS][TABLE_COLUMNS][48];
};

/* Adds a cell to the last row; the first row is the head. */
void table_cell(table_t *table, const char *format, ...) __attribute__((format(printf, 2, 3)));

void table_end_row(table_t *table);

void table_print(const table_t *table);
