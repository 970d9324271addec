/* Copyright (C) the limit_sliding authors */

#include "lua_scripts.hpp"

extern "C" {
#include <lauxlib.h>
#include <lua.h>
#include <lualib.h>
}

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "ngx/ngx.hpp"

namespace sim {

namespace {

ScriptHost host;
std::map<std::string, int> functions; /* by their digests */

/* Puts a reply on the stack as Redis does. */
void push(lua_State *lua, const Value &value) {
    switch (value.type) {
    case Value::kNil:
        lua_pushboolean(lua, 0);
        break;
    case Value::kInteger:
        lua_pushnumber(lua, static_cast<lua_Number>(value.number));
        break;
    case Value::kString:
        lua_pushlstring(lua, value.text.data(), value.text.size());
        break;
    case Value::kStatus:
    case Value::kError:
        lua_newtable(lua);
        lua_pushlstring(lua, value.text.data(), value.text.size());
        lua_setfield(lua, -2, value.type == Value::kError ? "err" : "ok");
        break;
    case Value::kArray:
        lua_createtable(lua, static_cast<int>(value.elements.size()), 0);
        for (size_t i = 0; i < value.elements.size(); i++) {
            push(lua, value.elements[i]);
            lua_rawseti(lua, -2, static_cast<int>(i + 1));
        }
    }
}

Value run_command(lua_State *lua) {
    Arguments args;
    for (int i = 1; i <= lua_gettop(lua); i++) {
        if (lua_type(lua, i) == LUA_TNUMBER) {
            char text[40];
            snprintf(text, sizeof(text), "%.17g", lua_tonumber(lua, i));
            args.emplace_back(text);
            continue;
        }

        size_t len = 0;
        const char *text = lua_tolstring(lua, i, &len);
        if (text == nullptr) { return Value::error("ERR arguments must be strings or integers"); }

        args.emplace_back(text, len);
    }

    if (args[0] == "TIME") {
        return Value::array({Value::string(std::to_string(host.now_us / 1000000)),
                             Value::string(std::to_string(host.now_us % 1000000))});
    }
    if (args[0] == "INFO") {
        char text[60];
        snprintf(text, sizeof(text), "run_id:%040llx", static_cast<unsigned long long>(host.run));
        return Value::string(text + std::string("\r\n"));
    }

    return host.store->run(args, host.now_us / 1000);
}

int redis_pcall(lua_State *lua) {
    push(lua, run_command(lua));
    return 1;
}

int redis_call(lua_State *lua) {
    const Value value = run_command(lua);
    push(lua, value);
    return value.type == Value::kError ? lua_error(lua) : 1;
}

/* Of struct.pack() the scripts use whole numbers alone, the highest byte first. */
int struct_pack(lua_State *lua) {
    std::string bytes;
    int arg = 2;
    for (const char *p = luaL_checkstring(lua, 1) + 1; *p != '\0'; p += 2) {
        auto number = static_cast<uint64_t>(static_cast<int64_t>(luaL_checknumber(lua, arg++)));
        for (int i = p[1] - '1'; i >= 0; i--) {
            bytes += static_cast<char>(number >> (8 * i));
        }
    }
    lua_pushlstring(lua, bytes.data(), bytes.size());
    return 1;
}

int struct_unpack(lua_State *lua) {
    size_t len;
    const char *format = luaL_checkstring(lua, 1);
    const char *data = luaL_checklstring(lua, 2, &len);
    auto at = static_cast<size_t>(luaL_optnumber(lua, 3, 1)) - 1;
    int n = 0;
    for (const char *p = format + 1; *p != '\0'; p += 2) {
        const auto size = static_cast<size_t>(p[1] - '0');
        uint64_t number = 0;
        luaL_argcheck(lua, at + size <= len, 2, "data string too short");
        for (size_t i = 0; i < size; i++) {
            number = number << 8 | static_cast<unsigned char>(data[at++]);
        }

        luaL_checkstack(lua, 2, "too many results");
        const bool is_signed = *p == 'i';
        const auto unused = static_cast<unsigned>(64 - 8 * size);
        const auto with_sign = static_cast<int64_t>(number << unused) >> unused;
        lua_pushnumber(lua, is_signed ? static_cast<lua_Number>(with_sign)
                                      : static_cast<lua_Number>(number));
        n++;
    }
    lua_pushnumber(lua, static_cast<lua_Number>(at + 1));
    return n + 1;
}

lua_State *create_lua() {
    static const luaL_Reg redis[]
        = {{"call", redis_call}, {"pcall", redis_pcall}, {nullptr, nullptr}};
    static const luaL_Reg structs[]
        = {{"pack", struct_pack}, {"unpack", struct_unpack}, {nullptr, nullptr}};

    lua_State *lua = luaL_newstate();
    luaL_openlibs(lua);
    luaL_register(lua, "redis", redis);
    luaL_register(lua, "struct", structs);
    lua_settop(lua, 0);
    return lua;
}

lua_State *the_lua() {
    static lua_State *lua = create_lua();
    return lua;
}

void set_global(lua_State *lua, const char *name, const Arguments &all) {
    lua_createtable(lua, static_cast<int>(all.size()), 0);
    for (size_t i = 0; i < all.size(); i++) {
        lua_pushlstring(lua, all[i].data(), all[i].size());
        lua_rawseti(lua, -2, static_cast<int>(i + 1));
    }
    lua_setglobal(lua, name);
}

/* Takes the value at the top of the stack as Redis does: numbers become whole ones. */
Value take(lua_State *lua) {
    Value value;
    if (lua_isnumber(lua, -1) && lua_type(lua, -1) == LUA_TNUMBER) {
        value = Value::integer(static_cast<int64_t>(lua_tonumber(lua, -1)));
    } else if (lua_isstring(lua, -1)) {
        size_t len;
        const char *text = lua_tolstring(lua, -1, &len);
        value = Value::string({text, len});
    } else if (lua_istable(lua, -1)) {
        lua_getfield(lua, -1, "err");
        const char *error = lua_tostring(lua, -1);
        value = error != nullptr ? Value::error(error) : Value::array({});
        lua_pop(lua, 1);
        for (int i = 1; error == nullptr; i++) {
            lua_rawgeti(lua, -1, i);
            if (lua_isnil(lua, -1)) {
                lua_pop(lua, 1);
                break;
            }
            value.elements.push_back(take(lua));
        }
    }
    lua_pop(lua, 1);
    return value;
}

} // namespace

std::string add_script(const std::string &text) {
    u_char digest[20], hex[40];
    ngx_sha1_t sha;
    ngx_sha1_init(&sha);
    ngx_sha1_update(&sha, text.data(), text.size());
    ngx_sha1_final(digest, &sha);
    ngx_hex_dump(hex, digest, sizeof(digest));

    std::string name(reinterpret_cast<char *>(hex), sizeof(hex));
    if (functions.find(name) != functions.end()) { return name; }

    lua_State *lua = the_lua();
    if (luaL_loadbuffer(lua, text.data(), text.size(), "script") != 0) {
        fprintf(stderr, "%s\n", lua_tostring(lua, -1));
        abort();
    }
    functions[name] = luaL_ref(lua, LUA_REGISTRYINDEX);
    return name;
}

Value run_script(const std::string &digest, ScriptHost in, const Arguments &keys,
                 const Arguments &args) {
    lua_State *lua = the_lua();
    host = in;
    set_global(lua, "KEYS", keys);
    set_global(lua, "ARGV", args);
    lua_rawgeti(lua, LUA_REGISTRYINDEX, functions.at(digest));
    if (lua_pcall(lua, 0, 1, 0) != 0) {
        /* an error of Redis is a table, one of Lua a text that no script should have */
        if (lua_isstring(lua, -1)) {
            fprintf(stderr, "%s\n", lua_tostring(lua, -1));
            abort();
        }
    }
    return take(lua);
}

} // namespace sim
