//! The command line works with any store: these tests run once more with the plain store in memory
//! (`plain:FILE`), which has no index and no log, and expect the same output.

use crate::common::with_plain_store;

macro_rules! with_the_plain_store {
    ($($module:ident: $($test:ident),+;)+) => {$(
        mod $module {
            $(
                #[test]
                fn $test() {
                    super::with_plain_store(crate::$module::$test);
                }
            )+
        }
    )+};
}

with_the_plain_store! {
    conditions:
        find_takes_conditions_with_and_or_not_and_brackets;
    datasets:
        a_load_goes_on_under_the_new_name,
        a_name_that_is_taken_or_no_name_is_refused;
    everyday:
        a_condition_on_an_object_names_its_fields,
        a_point_without_an_index_is_noted,
        cells_say_where_they_are_and_the_borders_are_in_the_last,
        pages_go_on_where_the_last_one_ended,
        the_nearest_are_printed_with_their_distances;
    imports:
        a_byte_order_mark_takes_no_record,
        a_file_without_a_good_line_is_a_failure_that_keeps_the_lines,
        a_load_says_how_many_records_it_replaced,
        an_array_is_read_as_records,
        an_object_that_is_there_for_an_array_is_read_as_its_records,
        columns_and_rows_that_do_not_fit,
        compressed_files_with_members_padding_and_cut_ends,
        decimals_as_people_write_them,
        objects_over_lines_and_several_on_one,
        quotes_of_csv_swallow_no_rows,
        separators_of_csv_are_found_or_said,
        the_exit_code_reports_rejected_lines,
        types_are_those_of_most_records;
    partial:
        fields_of_a_record_are_set_and_taken_away,
        lines_are_merged_into_records;
    questions:
        aggregates_are_one_object_a_group,
        answers_are_sorted_by_fields,
        some_fields_keep_their_nesting,
        the_latest_of_each_value_is_found_with_any_index_and_none,
        what_is_no_aggregate_is_refused;
    values:
        a_field_that_a_record_has_is_not_said_to_be_in_none,
        a_field_that_has_objects_alone_is_not_said_to_be_missing,
        an_int_index_takes_the_operands_that_a_scan_takes,
        conditions_take_times_relative_to_now,
        contains_finds_parts_of_texts_and_null_is_null,
        ranges_as_arguments_are_compared_by_value_too,
        the_columns_that_a_note_proposes_print_the_values;
}
