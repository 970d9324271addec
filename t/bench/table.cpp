/* Copyright (C) the limit_sliding authors */

#include "table.hpp"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

void table_cell(table_t *table, const char *format, ...) {
    char *cell = table->cell[table->row][table->column++];
    va_list values;

    va_start(values, format);
    vsnprintf(cell, sizeof(table->cell[0][0]), format, values);
    va_end(values);
}

void table_end_row(table_t *table) {
    if (table->column > table->columns) { table->columns = table->column; }

    table->column = 0;
    table->row++;
}

static int width_of(const table_t *table, size_t column) {
    size_t width = 0;

    for (size_t i = 0; i < table->row; i++) {
        size_t length = strlen(table->cell[i][column]);

        width = length > width ? length : width;
    }

    return (int)width;
}

/* Under the head.  All columns but the first are aligned to the right. */
static void print_rule(const table_t *table) {
    for (size_t c = 0; c < table->columns; c++) {
        int dashes = width_of(table, c) + 1;

        printf("|");

        for (int i = 0; i < dashes; i++) {
            printf("-");
        }

        printf("%c", c == 0 ? '-' : ':');
    }

    printf("|\n");
}

void table_print(const table_t *table) {
    for (size_t i = 0; i < table->row; i++) {
        for (size_t c = 0; c < table->columns; c++) {
            int width = width_of(table, c);

            printf("| %*s ", c == 0 ? -width : width, table->cell[i][c]);
        }

        printf("|\n");

        if (i == 0) { print_rule(table); }
    }

    printf("\n");
}
