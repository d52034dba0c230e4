// SPDX-License-Identifier: BSD-3-Clause
// soft/transport/connection_state: each state's successor with each event.
#include "soft/transport/connection_state.hpp"

#include <array>
#include <cstddef>
#include <optional>

// This comes last, because it asserts.
#include "../base/fixture.hpp"

namespace {

using State = soft::ConnectionState;
using Event = soft::ConnectionEvent;
constexpr std::size_t states = 11;

struct Row {
    Event event;
    std::array<std::optional<State>, states> after;  // in the order of State
};

void each_event_gives_each_state_its_successor(void **) {
    using enum State;
    constexpr auto none = std::nullopt;
    // Idle, AwaitsPromised, AwaitsFirst, Open, Stalled, PeerClosed, SendsOnly, Lost, Draining, Disconnecting,
    // Ended
    constexpr std::array rows{
        Row{Event::BeginsInitiator, {Open, none, none, none, none, none, none, none, none, none, Open}},
        Row{Event::BeginsPromised,
            {AwaitsPromised, none, none, none, none, none, none, none, none, none, AwaitsPromised}},
        Row{Event::BeginsResponder,
            {AwaitsFirst, none, none, none, none, none, none, none, none, none, AwaitsFirst}},
        Row{Event::FirstFpdu, {none, Open, Open, none, none, none, none, none, none, none, none}},
        Row{Event::Stalls, {none, Stalled, Stalled, Stalled, none, none, none, none, none, none, none}},
        Row{Event::PeerCloses,
            {none, PeerClosed, PeerClosed, PeerClosed, PeerClosed, PeerClosed, none, none, none, none, none}},
        Row{Event::ReceivesPosted, {none, none, none, none, Open, Open, none, none, none, none, none}},
        Row{Event::IgnoresPeer,
            {none, SendsOnly, SendsOnly, SendsOnly, SendsOnly, SendsOnly, SendsOnly, none, none, none, none}},
        Row{Event::LosesLink, {none, Lost, Lost, Lost, Lost, Lost, Lost, none, none, none, none}},
        Row{Event::Disconnects,
            {none, Disconnecting, Disconnecting, Disconnecting, Disconnecting, Disconnecting, Disconnecting,
             none, none, none, none}},
        Row{Event::Breaks,
            {none, Draining, Draining, Draining, Draining, Draining, Draining, none, none, none, none}},
        Row{Event::Ends, {Ended, Ended, Ended, Ended, Ended, Ended, Ended, Ended, Ended, Ended, Ended}},
        Row{Event::Resets, {none, none, none, none, none, none, none, none, none, none, Idle}},
    };
    assert_int_equal(rows.size(), static_cast<std::size_t>(Event::Resets) + 1);
    for (const Row &row : rows) {
        for (std::size_t i = 0; i < states; ++i) {
            if (after(static_cast<State>(i), row.event) != row.after.at(i)) {
                fail_msg("event %d in the state '%s' has another successor", static_cast<int>(row.event),
                         name_of(static_cast<State>(i)));
            }
        }
    }
}

void the_sets_of_states_agree_with_the_table(void **) {
    for (std::size_t i = 0; i < states; ++i) {
        const auto state = static_cast<State>(i);
        assert_int_equal(is_linked(state), after(state, Event::Breaks).has_value());
        assert_int_equal(awaits_peer(state), after(state, Event::FirstFpdu).has_value());
        assert_int_equal(awaits_receive(state), after(state, Event::ReceivesPosted).has_value());
        assert_int_equal(is_read(state), after(state, Event::Stalls).has_value());
        assert_int_equal(is_over(state), state >= State::Draining);
    }
}

void a_cell_keeps_its_state_until_an_event(void **) {
    const std::uint32_t number = 1;
    soft::ConnectionStateCell cell{number};
    assert_int_equal(cell.get(), State::Idle);
    for (const Event event : {Event::BeginsPromised, Event::FirstFpdu, Event::Disconnects}) {
        cell.on(event);
    }
    assert_int_equal(cell.get(), State::Disconnecting);
    cell.on(Event::Ends);
    cell.on(Event::Ends);
    cell.on(Event::Resets);
    assert_int_equal(cell.now(), State::Idle);
}

}  // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(each_event_gives_each_state_its_successor),
        cmocka_unit_test(the_sets_of_states_agree_with_the_table),
        cmocka_unit_test(a_cell_keeps_its_state_until_an_event),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
