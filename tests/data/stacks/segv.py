import ctypes, faulthandler, threading, time
faulthandler.enable()
def wait():
    time.sleep(60)
threading.Thread(target=wait, daemon=True).start()
def copy_rows(rows):
    ctypes.string_at(0)
def main():
    copy_rows([1, 2])
main()
